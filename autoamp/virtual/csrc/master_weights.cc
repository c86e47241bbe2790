#include "master_weights.h"

#include <cstring>

namespace vgpu {
namespace {

bool IsMasterOf(const DenseTensor* parameter, const DenseTensor* candidate) {
  return candidate && candidate->initialized() && candidate->dtype() == DataType::FLOAT32 &&
         candidate->dims() == parameter->dims();
}

bool SharesMemory(const DenseTensor* a, const DenseTensor* b) {
  return a && b && a->initialized() && a->Holder() == b->Holder();
}

// An optional float32 twin of a 16-bit tensor, both updated in place, the twin as the last
// output: no kernels but optimizers' look like this.
bool LooksLikeMaster(const Operands& call, size_t argument) {
  const InputKind kind = call.slot.inputs[argument];
  if (kind != InputKind::kOptional && kind != InputKind::kOptionalVector) return false;
  const size_t at = call.first_inputs[argument];
  const size_t end = argument + 1 < call.first_inputs.size() ? call.first_inputs[argument + 1]
                                                              : call.inputs.size();
  const size_t last = call.outputs.size() - (end > at ? end - at : 0);
  return at < end && last < call.outputs.size() && IsMasterOf(call.inputs[0], call.inputs[at]) &&
         SharesMemory(call.inputs[at], call.outputs[last]);
}

void CopyFloats(const DenseTensor& from, DenseTensor* to) {
  void* data = static_cast<phi::DeviceContext*>(CpuContext())->Alloc(to, DataType::FLOAT32);
  std::memcpy(data, from.data(), from.numel() * sizeof(float));
}

}  // namespace

MasterWeights FindMasters(const Operands& call) {
  MasterWeights found;
  const KernelSlot& slot = call.slot;
  if (!slot.converts || call.outputs.size() < 2 || call.inputs.empty() || !call.inputs[0] ||
      !IsHalf(call.inputs[0]->dtype()))
    return found;
  if (slot.master_input < 0) {
    if (!SharesMemory(call.inputs[0], call.outputs[0])) return found;
    for (size_t i = 1; i < call.first_inputs.size(); ++i)
      if (LooksLikeMaster(call, i))
        Refuse("the optimizer kernel '" + slot.name +
               "' keeps float32 master weights in a way that the virtual device does not know; "
               "use another optimizer, or AMP level O1.");
    return found;
  }
  const size_t count = call.first_inputs.size() > 1 ? call.first_inputs[1] : 0;
  const size_t first = call.first_inputs[slot.master_input];
  if (call.outputs.size() < 2 * count) return found;
  for (size_t i = 0; i < count && first + i < call.inputs.size(); ++i) {
    const MasterWeight m{call.inputs[i], call.inputs[first + i], call.outputs[i],
                         call.outputs[call.outputs.size() - count + i]};
    if (m.parameter && m.parameter->initialized() && IsHalf(m.parameter->dtype()) &&
        IsMasterOf(m.parameter, m.master) && m.updated_parameter && m.updated_master)
      found.push_back(m);
  }
  return found;
}

void StartMasters(const MasterWeights& masters, TensorMapping* mapping) {
  for (auto& m : masters)
    CopyFloats(*mapping->Input(m.master), mapping->Input(m.parameter));
}

void FinishMasters(const MasterWeights& masters, TensorMapping* mapping) {
  for (auto& m : masters)
    CopyFloats(*mapping->Output(m.updated_parameter), mapping->Output(m.updated_master));
}

}  // namespace vgpu
