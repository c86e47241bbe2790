#include "planning.h"

#include <cmath>
#include <cstring>

#include "convert.h"
#include "device_model.h"
#include "kernel_traits.h"
#include "views.h"

namespace vgpu {
namespace {

// Widest dtype in training is 8 bytes, so a copy of this size is of a large tensor.
constexpr size_t kLargeCopy = kLargeElements * 8;

bool IsLarge(const DenseTensor* tensor) { return tensor && tensor->numel() >= kLargeElements; }

bool HasUnknownShape(const DenseTensor& tensor) {
  const auto& dims = tensor.dims();
  for (int i = 0; i < dims.size(); ++i)
    if (dims[i] < 0) return true;
  return false;
}

DataType OutputType(const Operands& call, const DenseTensor& output) {
  // InferMeta leaves the dtype open for some kernels, which then use their own, and gives that
  // of the inputs for equal_all, whose CPU kernel answers with bool.
  if (call.slot.name == "equal_all") return DataType::BOOL;
  return output.dtype() == DataType::UNDEFINED ? call.slot.key.dtype() : output.dtype();
}

[[noreturn]] void RefuseForData(const Operands& call) {
  Refuse("autoamp planning mode (numerics=off) cannot run '" + call.slot.name +
         "': the shape of its result depends on values that planning mode does not compute. "
         "Use the virtual device with numerics on for this script.");
}

bool HasLargeInput(const Operands& call) {
  for (auto* input : call.inputs)
    if (IsLarge(input) && input->initialized()) return true;
  return false;
}

bool MustPlan(const Operands& call) {
  // GradScaler's check always answers "finite": a scale that moved for want of real numbers
  // would skip optimizer steps and so falsify time and memory.
  if (call.slot.name == "check_finite_and_unscale") return true;
  if (HasLargeInput(call)) return true;
  for (auto* output : call.outputs)
    if (IsLarge(output)) return true;
  return false;
}

}  // namespace

bool SkipsCopy(size_t bytes) { return !Device().numerics && bytes >= kLargeCopy; }

bool PlanInsteadOfRun(const Operands& call) {
  if (call.outputs.empty() || !MustPlan(call)) return false;
  if (call.slot.work == WorkKind::kView && !WillCopy(call)) return false;
  if (call.slot.shape_depends_on_data) RefuseForData(call);
  // A result that only the CPU kernel can size, from values that were never computed, would get
  // another shape than training has. (Further outputs may be a kernel's scratch memory, as in
  // batch_norm; affine_grid reads its shape from a small tensor.)
  auto* result = call.outputs[0];
  if (result && HasUnknownShape(*result) && call.slot.work != WorkKind::kView &&
      call.slot.name != "affine_grid" && HasLargeInput(call))
    RefuseForData(call);
  // A kernel none of whose output shapes is known (a side effect, or an output that the CPU
  // kernel sizes itself) has to run.
  bool any = false;
  for (auto* output : call.outputs) {
    if (!output || HasUnknownShape(*output) || output->numel() == 0) continue;
    if (OutputType(call, *output) == DataType::UNDEFINED) return false;
    any = true;
  }
  if (!any) return false;
  for (auto* output : call.outputs) {
    if (!output || HasUnknownShape(*output) || output->numel() == 0) continue;
    const DataType type = OutputType(call, *output);
    void* data = call.slot.work == WorkKind::kView ? AllocateFresh(*call.device, output, type)
                                                   : call.device->Alloc(output, type, 0);
    if (!IsLarge(output) && IsContiguous(*output))
      std::memset(data, 0, output->numel() * phi::SizeOf(output->dtype()));
  }
  return true;
}

void ScrubNonFinite(const KernelSlot& slot, DenseTensor* tensor) {
  if (IsLarge(tensor) || !IsContiguous(*tensor) || PlacesConstants(slot.name)) return;
  const int64_t count = tensor->numel();
  if (tensor->dtype() == DataType::FLOAT32) {
    auto* values = static_cast<float*>(tensor->data());
    for (int64_t i = 0; i < count; ++i)
      if (!std::isfinite(values[i])) values[i] = 0;
  } else if (IsHalf(tensor->dtype())) {
    const uint16_t exponent = tensor->dtype() == DataType::FLOAT16 ? 0x7c00 : 0x7f80;
    auto* values = static_cast<uint16_t*>(tensor->data());
    for (int64_t i = 0; i < count; ++i)
      if ((values[i] & exponent) == exponent) values[i] = 0;
  }
}

void ZeroUncomputedViews(const Operands& call) {
  for (auto* input : call.inputs) {
    if (!input || !input->initialized() || IsLarge(input) || input->numel() == 0 ||
        input->place().GetType() != phi::AllocationType::CUSTOM)
      continue;
    const size_t width = phi::SizeOf(input->dtype());
    // Paddle rounds allocations up by up to 256 bytes.
    if (input->Holder()->size() < kLargeElements * width + 256) continue;
    auto* data = static_cast<char*>(const_cast<void*>(input->data()));
    if (IsContiguous(*input)) {
      std::memset(data, 0, input->numel() * width);
      continue;
    }
#ifdef AUTOAMP_HAS_STRIDES
    const auto& dims = input->dims();
    const auto& strides = input->strides();
    std::vector<int64_t> index(dims.size(), 0);
    for (int64_t i = 0; i < input->numel(); ++i) {
      int64_t offset = 0;
      for (int k = 0; k < dims.size(); ++k) offset += index[k] * strides[k];
      std::memset(data + offset * width, 0, width);
      for (int k = dims.size() - 1; k >= 0; --k) {
        if (++index[k] < dims[k]) break;
        index[k] = 0;
      }
    }
#endif
  }
}

}  // namespace vgpu
