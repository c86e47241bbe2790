#include "cost_model.h"

#include <algorithm>

#include "device_model.h"

namespace vgpu {
namespace {

double Elements(const DenseTensor* tensor) { return static_cast<double>(tensor->numel()); }

double Bytes(const DenseTensor* tensor) {
  if (!tensor || !tensor->initialized() || tensor->dtype() == DataType::UNDEFINED) return 0;
  return Elements(tensor) * static_cast<double>(phi::SizeOf(tensor->dtype()));
}

// The inner dimension of x (.) y = out, told by shapes: transposes need no look-up, since a
// square x has the same size either way.
double InnerDimension(const DenseTensor& x, const DenseTensor& out) {
  const auto& xd = x.dims();
  const auto& od = out.dims();
  if (xd.size() <= 1) return Elements(&x);
  const int64_t rows = xd[xd.size() - 2], columns = xd[xd.size() - 1];
  const int64_t m = od.size() >= 2 ? od[od.size() - 2] : rows;
  return static_cast<double>(rows == m ? columns : rows);
}

size_t Wanted(const Operands& call) {
  return std::count_if(call.outputs.begin(), call.outputs.end(),
                       [](const DenseTensor* t) { return t != nullptr; });
}

double Flops(const Operands& call) {
  const bool forward =
      call.slot.work == WorkKind::kMatmul || call.slot.work == WorkKind::kConv;
  if (call.inputs.size() < 2 || call.outputs.empty()) return 0;
  const DenseTensor* out = forward                  ? call.outputs[0]
                           : call.inputs.size() > 2 ? call.inputs[2]
                                                    : nullptr;
  const DenseTensor* x = call.inputs[0];
  const DenseTensor* weight = call.inputs[1];
  if (!out || !x || !weight) return 0;
  double flops = 0;
  switch (call.slot.work) {
    case WorkKind::kMatmul:
    case WorkKind::kMatmulGrad:
      flops = 2 * Elements(out) * InnerDimension(*x, *out);
      break;
    case WorkKind::kConv:
    case WorkKind::kConvGrad:
      // Weights are [out channels, in channels / groups, kernel...] in every data format.
      if (weight->dims().size() > 0 && weight->dims()[0] > 0)
        flops = 2 * Elements(out) * Elements(weight) / static_cast<double>(weight->dims()[0]);
      break;
    default:
      return 0;
  }
  // A backward call does one product of this size for each gradient that is asked for.
  return forward ? flops : flops * static_cast<double>(Wanted(call));
}

double PeakFlops(const Work& work) {
  const DeviceModel& d = Device();
  double peak = 0;
  if (work.type == DataType::FLOAT16) peak = d.float16_flops_per_s;
  if (work.type == DataType::BFLOAT16) peak = d.bfloat16_flops_per_s;
  if (work.type == DataType::FLOAT32) {
    const bool conv = work.kind == WorkKind::kConv || work.kind == WorkKind::kConvGrad;
    const bool tf32 = conv ? d.tf32_conv : d.tf32_matmul;
    if (tf32) peak = d.tf32_flops_per_s;
  }
  return peak > 0 ? peak : d.float32_flops_per_s;
}

constexpr double kLaunchSeconds = 4e-6;
constexpr double kBusBytesPerSecond = 12e9;

}  // namespace

Work MeasureWork(const Operands& call) {
  Work work;
  work.kind = call.slot.work;
  work.type = call.slot.key.dtype();
  if (work.kind == WorkKind::kView) return work;
  for (auto* input : call.inputs) work.bytes += Bytes(input);
  for (auto* output : call.outputs) work.bytes += Bytes(output);
  work.flops = Flops(call);
  return work;
}

double ModelSeconds(const Work& work) {
  if (work.kind == WorkKind::kView) return 0;
  return std::max(work.flops / PeakFlops(work), work.bytes / Device().bandwidth_bytes_per_s) +
         kLaunchSeconds;
}

double CopySeconds(bool over_bus, double bytes) {
  return over_bus ? bytes / kBusBytesPerSecond : 2 * bytes / Device().bandwidth_bytes_per_s;
}

}  // namespace vgpu
