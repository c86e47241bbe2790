// Runs one wrapped kernel, on the two routes by which Paddle calls kernels.
#pragma once

#include "kernel_slot.h"

namespace vgpu {

// Registers and stack of a typed call, as the stub saved them.
struct SavedRegisters {
  uint64_t general[kGeneralRegisters];
  double floats[kFloatRegisters];
  uint64_t* stack;
};

// The executor's route (to_static): arguments come in a KernelContext.
void RunFromContext(KernelContext* context, uint32_t slot);
// The eager route: Paddle calls a typed function pointer.
void RunVariadic(uint32_t slot, SavedRegisters* registers);

}  // namespace vgpu
