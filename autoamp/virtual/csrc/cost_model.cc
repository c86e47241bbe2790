#include "cost_model.h"

#include <algorithm>
#include <cmath>

#include "device_model.h"
#include "model_parameters.h"

namespace vgpu {
namespace {

bool IsConv(const Work& work) {
  return work.kind == WorkKind::kConv || work.kind == WorkKind::kConvGrad;
}

struct Rate {
  double flops_per_s;
  bool tensor_cores;
};

Rate RateOf(const Work& work) {
  const DeviceModel& d = Device();
  const double sustained = Parameters().sustained_clock;
  double tensor = 0;
  if (work.unit == Unit::kFloat16) tensor = d.float16_flops_per_s;
  if (work.unit == Unit::kBfloat16) tensor = d.bfloat16_flops_per_s;
  if (work.unit == Unit::kTf32 && (IsConv(work) ? d.tf32_conv : d.tf32_matmul))
    tensor = d.tf32_flops_per_s;
  // A GPU whose 16-bit rate is no higher than float32's has no Tensor Cores for it.
  if (tensor > d.float32_flops_per_s) return {tensor * sustained, true};
  return {d.float32_flops_per_s * sustained, false};
}

// Tensor Core kernels load 16 bytes at a time: 8 elements of 16 bits.
constexpr double kAlignedBytes = 16;

bool IsAligned(const Work& work) {
  return work.row_multiple * work.element_bytes >= kAlignedBytes;
}

// Depthwise and other narrow groups (below 8 channels each) are a few columns wide: no tiles to
// speak of; libraries compute them directly, output by output.
constexpr double kNarrow = 8;

bool IsDirect(const Work& work) {
  if (!IsConv(work) || work.product_count == 0) return false;
  return work.products[0].batch > 1 && work.row_multiple < kNarrow;
}

// Tiles that libraries choose from, with the share of full speed that each one reaches: small
// tiles reuse less of what they load into registers.
struct Tile {
  double m, n, efficiency;
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 128, 0.95}, {128, 64, 0.85}, {64, 64, 0.75},
                           {128, 32, 0.65}, {32, 32, 0.45}};
// A split of the inner dimension below this many elements does not pay for its reduction.
constexpr double kSplit = 512;

double TileSeconds(const Product& p, const Tile& tile, double flops_per_s, double element_bytes) {
  const DeviceModel& d = Device();
  const double sms = std::max(1.0, d.sm_count);
  const double tiles = std::ceil(p.m / tile.m) * std::ceil(p.n / tile.n) * p.batch;
  const double splits =
      std::max(1.0, std::min(std::floor(sms / tiles), std::floor(p.k / kSplit)));
  const double waves = std::ceil(tiles * splits / sms);
  // Loads of the first slices have nothing to overlap with.
  const double depth = std::ceil(p.k / splits) + Parameters().pipeline_fill;
  const double compute =
      waves * 2 * tile.m * tile.n * depth / (flops_per_s / sms * tile.efficiency);
  // A catalogue without SM count or clock says nothing about the cache.
  if (d.sm_count <= 1 || d.boost_clock_mhz <= 0) return compute;
  // Every tile reads its rows and columns from the second-level cache.
  const double l2_rate = Parameters().l2_bytes_per_clock_per_sm * sms * d.boost_clock_mhz * 1e6 *
                         Parameters().sustained_clock;
  const double l2 = tiles * (tile.m + tile.n) * p.k * element_bytes / l2_rate;
  return std::max(compute, l2);
}

double ProductSeconds(const Work& work, const Product& product) {
  const ModelParameters& p = Parameters();
  const bool conv = IsConv(work);
  Rate rate = RateOf(work);
  const double plain = Device().float32_flops_per_s * p.sustained_clock;
  if (IsDirect(work)) {
    // A depthwise weight gradient sums over all positions for a handful of results a channel.
    const bool sums = work.row_multiple == 1 && product.k > product.m;
    const double share = sums ? p.depthwise_sum_share : p.direct_share;
    return 2 * product.m * product.n * product.k * product.batch / (plain * share);
  }
  // Convolutions whose channels are not aligned get plain kernels, in the same dtype.
  if (conv && !IsAligned(work)) rate = {plain, false};
  double efficiency = rate.tensor_cores
                          ? (conv ? p.tensor_conv_efficiency : p.tensor_matmul_efficiency)
                          : (conv ? p.plain_conv_efficiency : p.plain_matmul_efficiency);
  // What is lost to feeding Tensor Cores halves where they do half the work from the same feed.
  if (rate.tensor_cores) efficiency = 1 / (1 + (1 / efficiency - 1) / p.tensor_feed);
  if (rate.tensor_cores && !IsAligned(work)) efficiency *= p.misaligned_efficiency;
  // Winograd kernels come in tiles of 32 channels.
  if (!rate.tensor_cores && work.winograd && work.element_bytes == 4 && work.row_multiple >= 32)
    efficiency *= p.winograd_speedup;
  const double flops_per_s = rate.flops_per_s * efficiency;
  double best = INFINITY;
  for (const Tile& tile : kTiles)
    best = std::min(best, TileSeconds(product, tile, flops_per_s, work.element_bytes));
  return best;
}

// Transposing kernels move single elements, so SMs limit them where memory would give more.
double TransposeSeconds(const Work& work) {
  const DeviceModel& d = Device();
  const double stream = StreamSeconds(2 * work.transposed_bytes);
  if (d.sm_count <= 1 || d.boost_clock_mhz <= 0) return stream;
  const double elements = 2 * work.transposed_bytes / work.element_bytes;
  const double rate =
      Parameters().transposed_per_clock_per_sm * d.sm_count * d.boost_clock_mhz * 1e6;
  return std::max(stream, elements / rate);
}

}  // namespace

bool UsesTensorCores(const Work& work) { return RateOf(work).tensor_cores && IsAligned(work); }

double StreamSeconds(double bytes) {
  const ModelParameters& p = Parameters();
  const double rate = Device().bandwidth_bytes_per_s * p.bandwidth_efficiency * p.bandwidth_factor;
  // What fits into half of the second-level cache was most likely left there by the kernel
  // before; beyond that the speed falls back to memory's.
  const double cached = std::min(bytes, p.l2_bytes / 2);
  const double share = bytes > 0 ? cached / bytes : 0;
  const double speedup = 1 + (p.l2_speedup - 1) * share * share;
  return bytes / (rate * speedup);
}

double BusSeconds(double bytes) { return bytes / Parameters().bus_bytes_per_s; }

namespace {

double KernelSeconds(const Work& work) {
  const ModelParameters& p = Parameters();
  const double stream = StreamSeconds(work.bytes + work.extra_bytes);
  if (work.product_count == 0) return stream + p.kernel_floor_s;
  double seconds = 0;
  double kernels = 0;
  for (int i = 0; i < work.product_count; ++i) kernels += work.products[i].times;
  for (int i = 0; i < work.product_count; ++i) {
    // Each product is a kernel of its own and moves its share of the operands.
    seconds += work.products[i].times * (std::max(ProductSeconds(work, work.products[i]),
                                                  StreamSeconds(work.bytes / kernels)) +
                                         p.kernel_floor_s);
  }
  // Tensor Core convolutions want channels last: NCHW operands are transposed, read and
  // written once more each; 16-bit ones with other channel counts are padded.
  if (IsConv(work) && !IsDirect(work) && work.transposed_bytes > 0 &&
      (IsAligned(work) || work.element_bytes == 2) && RateOf(work).tensor_cores)
    seconds += TransposeSeconds(work);
  return seconds;
}

}  // namespace

double GpuSeconds(const Work& work) {
  if (work.kind == WorkKind::kView) return 0;
  const double seconds = KernelSeconds(work);
  if (work.unit != Unit::kTf32 || work.product_count == 0 || !RateOf(work).tensor_cores)
    return seconds;
  // TF32 is allowed, not forced: where it is hardly faster (GeForce), libraries stay on plain
  // cores rather than transpose.
  Work plain = work;
  plain.unit = Unit::kPlain;
  return std::min(seconds, KernelSeconds(plain));
}

double HostSeconds(const Work& work) {
  const ModelParameters& p = Parameters();
  return work.from_program ? p.host_program_s : p.host_eager_s;
}

}  // namespace vgpu
