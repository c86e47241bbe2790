#include "workspace.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <vector>

#include "cost_model.h"
#include "device_memory.h"

#ifndef AUTOAMP_PADDLE_2
// From paddle/phi/core/memory/stats.h, which asks for a header that no wheel has.
namespace paddle::memory {
int64_t DeviceMemoryStatCurrentValue(const std::string& kind, int device);
int64_t DeviceMemoryStatPeakValue(const std::string& kind, int device);
void DeviceMemoryStatResetPeakValue(const std::string& kind, int device);
}  // namespace paddle::memory
#endif

namespace vgpu {
namespace {

// Paddle's own default (paddle/phi/backends/gpu/cuda/cudnn_workspace_helper.h).
constexpr long long kDefaultLimit = 512ll << 20;
// A search also tries the Fourier methods, which keep input and output as half spectra of
// complex float32 numbers: 8 bytes for two values, padded to about twice as many.
constexpr double kFourierBytes = 8;
// Non-fused Winograd F(4x4, 3x3) keeps 36 values for each 16 of input and output.
constexpr double kWinogradCopies = 36.0 / 16.0;

std::atomic<long long> workspace_limit{kDefaultLimit};
std::atomic<ConvSearch> conv_search{ConvSearch::kNone};
std::atomic<size_t> need_peak{0}, allocated_peak{0};

std::mutex search_lock;
// Convolutions that were searched for already, by kernel and shapes: Paddle caches the choice.
std::set<std::vector<int64_t>> searched;

bool IsFirstSearch(const Operands& call) {
  std::vector<int64_t> key{reinterpret_cast<int64_t>(&call.slot)};
  for (size_t i = 0; i < 2 && i < call.inputs.size(); ++i)
    for (int k = 0; call.inputs[i] && k < call.inputs[i]->dims().size(); ++k)
      key.push_back(call.inputs[i]->dims()[k]);
  std::lock_guard<std::mutex> guard(search_lock);
  return searched.insert(std::move(key)).second;
}

// Bytes of live tensors; Paddle 2.6 does not keep count of them on custom devices.
size_t LiveBytes(size_t held) {
#ifdef AUTOAMP_PADDLE_2
  return held;
#else
  return static_cast<size_t>(paddle::memory::DeviceMemoryStatCurrentValue("Allocated", 0));
#endif
}

void RaiseTo(std::atomic<size_t>* peak, size_t value) {
  size_t seen = peak->load();
  while (value > seen && !peak->compare_exchange_weak(seen, value)) {
  }
}

// Lets Paddle's allocator find out: it gives back idle chunks before it throws.
void AllocateOnce(const Operands& call, size_t bytes) {
  TrialAllocation trial;
  DenseTensor scratch;
  scratch.Resize(phi::make_ddim({static_cast<int64_t>(bytes)}));
#ifdef AUTOAMP_PADDLE_2
  call.device->Alloc(&scratch, DataType::UINT8, 0);
#else
  namespace memory = paddle::memory;
  const auto before = static_cast<size_t>(memory::DeviceMemoryStatPeakValue("Allocated", 0));
  call.device->Alloc(&scratch, DataType::UINT8, 0);
  scratch.clear();
  // The peak of live tensors stays theirs. The block stays in the pool, as on a GPU, where later
  // tensors split it.
  if (static_cast<size_t>(memory::DeviceMemoryStatPeakValue("Allocated", 0)) > before) {
    RaiseTo(&allocated_peak, before);
    memory::DeviceMemoryStatResetPeakValue("Allocated", 0);
  }
#endif
}

}  // namespace

void SetConvWorkspace(long long limit_bytes, ConvSearch kind) {
  workspace_limit = limit_bytes;
  conv_search = kind;
}

void LoadConvWorkspace() {
  const char* megabytes = std::getenv("FLAGS_conv_workspace_size_limit");
  const char* exhaustive = std::getenv("FLAGS_cudnn_exhaustive_search");
  const bool on = exhaustive && *exhaustive && *exhaustive != '0' && *exhaustive != 'f' &&
                  *exhaustive != 'F';
  SetConvWorkspace(megabytes && *megabytes ? std::strtoll(megabytes, nullptr, 10) * (1ll << 20)
                                           : kDefaultLimit,
                   on ? ConvSearch::kFits : ConvSearch::kNone);
}

size_t WorkspaceBytes(const Operands& call, const Work& work) {
  if (work.operand_bytes <= 0) return 0;
  double most = static_cast<double>(workspace_limit);
  if (most < 0) {
    const MemoryState state = ReadMemory();
    most = static_cast<double>(state.capacity_bytes - LiveBytes(state.used_bytes));
  }
  double bytes = 0;
  if (UsesTensorCores(work)) {
    // Operands in NCHW are copied to channels-last; in NHWC nothing is.
    if (work.transposed_bytes > 0) bytes = work.operand_bytes;
  } else if (work.winograd && work.element_bytes == 4) {
    bytes = kWinogradCopies * work.operand_bytes;
  }
  // Algorithms that want more than the limit are passed over.
  if (bytes > most) bytes = 0;
  const ConvSearch kind = conv_search.load();
  if (kind == ConvSearch::kNone || !IsFirstSearch(call)) return static_cast<size_t>(bytes);
  if (kind == ConvSearch::kWholeLimit) return static_cast<size_t>(most);
  if (work.dense_window)
    bytes = std::max(bytes,
                     std::min(most, kFourierBytes * work.operand_bytes / work.element_bytes));
  return static_cast<size_t>(bytes);
}

void HoldWorkspace(const Operands& call, const Work& work) {
  const size_t bytes = WorkspaceBytes(call, work);
  if (bytes == 0) return;
  const MemoryState memory = ReadMemory();
  // Idle blocks of the pool are not counted on: whether one of them is long enough depends on
  // where tensors lie. Where it matters, Paddle's allocator is asked.
  const size_t need = memory.used_bytes + bytes;
  if (need > memory.capacity_bytes) AllocateOnce(call, bytes);
  RaiseTo(&need_peak, std::min(need, memory.capacity_bytes));
}

size_t WorkspacePeak() {
  const size_t held = ReadMemory().peak_bytes, need = need_peak.load();
  return need > held ? need - held : 0;
}

size_t AllocatedPeakBefore() { return allocated_peak.load(); }

void ResetWorkspacePeak() { need_peak = allocated_peak = 0; }

}  // namespace vgpu
