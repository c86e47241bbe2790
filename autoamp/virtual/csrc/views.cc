#include "views.h"

#include <set>

namespace vgpu {

bool IsView(const Operands& call) {
  if (call.slot.work != WorkKind::kView) return false;
  for (auto* output : call.outputs) {
    if (!output || !output->Holder()) continue;
    bool shared = false;
    for (auto* input : call.inputs)
      shared = shared || (input && input->Holder() == output->Holder());
    if (!shared) return false;
  }
  return true;
}

void* AllocateFresh(const phi::DeviceContext& device, DenseTensor* tensor, DataType type) {
  DenseTensor fresh;
  fresh = DenseTensor(std::shared_ptr<phi::Allocation>(),
                      phi::DenseTensorMeta(type, tensor->dims(), tensor->layout()));
  void* data = device.Alloc(&fresh, type, 0);
  // The old memory may be smaller than the new shape wants, so the shape comes last.
  phi::DenseTensorMeta meta = fresh.meta();
  tensor->ResetHolder(fresh.Holder());
  tensor->set_meta(meta);
  return data;
}

#ifdef AUTOAMP_HAS_STRIDES
namespace {

// Whether a strided tensor can be seen under other dimensions without moving a byte: each run
// of old dimensions that lies evenly in memory must be cut or joined into whole new ones.
bool CanBeSeenAs(const DenseTensor& tensor, const phi::DDim& dims) {
  const auto& old_dims = tensor.dims();
  const auto& strides = tensor.strides();
  int next = dims.size() - 1;
  int64_t run = 1, covered = 1;
  int64_t base = old_dims.size() ? strides[old_dims.size() - 1] : 1;
  for (int d = old_dims.size() - 1; d >= 0; --d) {
    run *= old_dims[d];
    const bool run_ends =
        d == 0 || (old_dims[d - 1] != 1 && strides[d - 1] != run * base);
    if (!run_ends) continue;
    while (next >= 0 && (covered < run || dims[next] == 1)) covered *= dims[next--];
    if (covered != run) return false;
    if (d > 0) {
      base = strides[d - 1];
      run = covered = 1;
    }
  }
  return next == -1;
}

}  // namespace

bool WillCopy(const Operands& call) {
  // Gradients of partial views fill a whole tensor with zeros and write the part.
  static const std::set<std::string> scatters = {
      "as_strided_grad",    "diagonal_grad",          "imag_grad",
      "index_select_strided_grad",                    "real_grad",
      "slice_grad",         "strided_slice_grad",     "strided_slice_raw_grad",
      "tensor_unfold_grad", "index_select_strided"};
  static const std::set<std::string> relabels = {"reshape",      "reshape_grad", "flatten",
                                                 "flatten_grad", "view_shape",   "view_shape_grad"};
  if (scatters.count(call.slot.name)) return true;
  if (!relabels.count(call.slot.name) || call.inputs.empty() || call.outputs.empty()) return false;
  // The gradients' last input is the gradient that is relabelled.
  const DenseTensor* source = call.inputs.back();
  const DenseTensor* output = call.outputs[0];
  if (!source || !output || !source->initialized()) return false;
  return !IsContiguous(*source) && !CanBeSeenAs(*source, output->dims());
}
#else
bool WillCopy(const Operands&) { return true; }
#endif

}  // namespace vgpu
