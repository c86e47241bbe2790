// Planning mode (numerics off): what is not computed, and what stands in its place.
#pragma once

#include "operands.h"

namespace vgpu {

// A tensor of this many elements or more is "large": kernels that touch one are not computed.
// Losses, flags, scalers and most biases stay below it.
inline constexpr int64_t kLargeElements = 65536;

// True if this call was planned instead of run: outputs allocated, small ones zero.
// Throws for a kernel whose output shape depends on values that nobody computed.
bool PlanInsteadOfRun(const Operands& call);

// Copies between host and device that planning mode leaves out: large for any dtype.
bool SkipsCopy(size_t bytes);

// A small result computed from zeros may be 0/0; makes it 0, except for constants.
void ScrubNonFinite(const KernelSlot& slot, DenseTensor* tensor);

// Small views of memory that was never computed read as zeros.
void ZeroUncomputedViews(const Operands& call);

}  // namespace vgpu
