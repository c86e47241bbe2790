// Kernels on strides: most only relabel memory, some have to copy.
#pragma once

#include "operands.h"

namespace vgpu {

// True if the finished call's results lie in the memory of its inputs: nothing moved.
bool IsView(const Operands& call);

// Before the call: whether a strided kernel will have to copy.
bool WillCopy(const Operands& call);

}  // namespace vgpu
