// float16 and bfloat16 to float32 and back: exact one way, rounded to nearest even the other,
// with overflow to infinity, as a GPU's conversion instructions do.
#pragma once

#include <cstdint>

#include "paddle_api.h"

namespace vgpu {

void Widen(DataType half, const void* from, float* to, int64_t count);
void Round(DataType half, const float* from, void* to, int64_t count);

// Forces the portable code; the tests compare it with the vector code over every bit pattern.
void UseScalarConversion(bool scalar);
bool HasVectorConversion();

}  // namespace vgpu
