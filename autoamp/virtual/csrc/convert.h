// float16 and bfloat16 to float32 and back: exact one way, rounded to nearest even the other,
// with overflow to infinity, as a GPU's conversion instructions do.
#pragma once

#include <cstdint>

// The header of one enumeration, not paddle_api.h: the tests run this code without Paddle's
// libraries, on emulated processors.
#include "paddle/phi/common/data_type.h"

namespace vgpu {

using phi::DataType;

void Widen(DataType half, const void* from, float* to, int64_t count);
void Round(DataType half, const float* from, void* to, int64_t count);

// Forces the portable code; the tests compare it with the vector code over every bit pattern.
void UseScalarConversion(bool scalar);
bool HasVectorConversion();

}  // namespace vgpu
