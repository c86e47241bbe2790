// Kernels on strides: most only relabel memory, some have to copy.
#pragma once

#include "operands.h"

namespace vgpu {

// True if the finished call's results lie in the memory of its inputs: nothing moved.
bool IsView(const Operands& call);

// Before the call: whether a strided kernel will have to copy.
bool WillCopy(const Operands& call);

// Gives a tensor memory of its own, dense, under its present dimensions. Eager calls hand in
// views' outputs already sharing their input's memory, which a copy must not write to.
void* AllocateFresh(const phi::DeviceContext& device, DenseTensor* tensor, DataType type);

}  // namespace vgpu
