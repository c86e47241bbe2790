// What has to be known about kernels by name.
#pragma once

#include <string>

#include "kernel_slot.h"

namespace vgpu {

// Kernels that are not offered on the device at all.
bool IsLeftOut(const std::string& name);
// Kernels that only move data: the CPU's own 16-bit version is right, and faster.
bool MovesDataOnly(const std::string& name);
// Kernels whose output shape depends on the values of their inputs.
bool ShapeDependsOnData(const std::string& name);
// Kernels that behave differently if their output has memory before the call.
bool WantsEmptyOutput(const std::string& name);
// Kernels whose results may rightly be infinite: they place constants (masks of -inf).
bool PlacesConstants(const std::string& name);
// Kernels that Paddle compiles for AVX-512 and calls without asking the processor.
bool NeedsAvx512(const std::string& name);
// Position of an optimizer's master_param among its inputs, counted from the end (negative);
// 0 for other kernels.
int MasterFromEnd(const std::string& name);
WorkKind WorkOf(const std::string& name, phi::DataLayout layout);

}  // namespace vgpu
