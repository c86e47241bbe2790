#include "fast_cast.h"

#include "convert.h"
#include "counters.h"

namespace vgpu {

bool CastDirectly(const Operands& call) {
  if (!call.slot.is_cast) return false;
  const DenseTensor* from = call.inputs[0];
  DenseTensor* to = call.outputs[0];
  if (!from || !to || !from->initialized() || !IsContiguous(*from) ||
      from->Holder() == to->Holder())
    return false;
  const bool rounds = from->dtype() == DataType::FLOAT32 && IsHalf(to->dtype());
  const bool widens = IsHalf(from->dtype()) && to->dtype() == DataType::FLOAT32;
  if (!rounds && !widens) return false;
  const int64_t count = from->numel();
  void* data = call.device->Alloc(to, to->dtype(), 0);
  if (TracksRanges()) TrackRange(call.slot, *from, to->dtype());
  if (rounds)
    Round(to->dtype(), static_cast<const float*>(from->data()), data, count);
  else
    Widen(from->dtype(), from->data(), static_cast<float*>(data), count);
  return true;
}

}  // namespace vgpu
