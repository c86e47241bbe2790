#include "convert.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vgpu {
namespace {

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
float Float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

float WidenFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) {  // infinity, or NaN made quiet as F16C does
    const uint32_t quiet = mantissa ? 0x400000 : 0;
    return Float(sign | 0x7f800000 | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24 is exact in float32
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return Float(sign | Bits(value));
  }
  return Float(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t RoundFloat16(float value) {
  const uint32_t bits = Bits(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00 | static_cast<uint16_t>((magnitude >> 13) & 0x3ff);
  // 65520 is half-way between the largest float16 and the next step: it rounds to infinity.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Below 2^-14 the result is subnormal: let the FPU round at the right place by adding
    // 0.5, whose last mantissa bit weighs 2^-24.
    const float shifted = Float(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(Bits(shifted) - 0x3f000000);
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return sign | static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

void WidenFloat16Scalar(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = WidenFloat16(from[i]);
}
void RoundFloat16Scalar(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = RoundFloat16(from[i]);
}

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) void WidenFloat16Vector(const uint16_t* from, float* to,
                                                            int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                 reinterpret_cast<const __m128i*>(from + i))));
  for (; i < count; ++i) to[i] = WidenFloat16(from[i]);
}
__attribute__((target("avx2,f16c"))) void RoundFloat16Vector(const float* from, uint16_t* to,
                                                            int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) to[i] = RoundFloat16(from[i]);
}
bool VectorSupported() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}
#else
bool VectorSupported() { return false; }
void WidenFloat16Vector(const uint16_t* from, float* to, int64_t count) {
  WidenFloat16Scalar(from, to, count);
}
void RoundFloat16Vector(const float* from, uint16_t* to, int64_t count) {
  RoundFloat16Scalar(from, to, count);
}
#endif

// bfloat16 is the upper half of a float32; compilers vectorise these loops by themselves.
void WidenBfloat16(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, 4);
  }
}
void RoundBfloat16(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t quiet_nan = (bits >> 16) | 0x40;
    to[i] = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
  }
}

bool scalar_only = false;

bool UseVector() {
  static const bool supported = VectorSupported();
  return supported && !scalar_only;
}

}  // namespace

void Widen(DataType half, const void* from, float* to, int64_t count) {
  const auto* source = static_cast<const uint16_t*>(from);
  if (half == DataType::BFLOAT16)
    WidenBfloat16(source, to, count);
  else if (UseVector())
    WidenFloat16Vector(source, to, count);
  else
    WidenFloat16Scalar(source, to, count);
}

void Round(DataType half, const float* from, void* to, int64_t count) {
  auto* target = static_cast<uint16_t*>(to);
  if (half == DataType::BFLOAT16)
    RoundBfloat16(from, target, count);
  else if (UseVector())
    RoundFloat16Vector(from, target, count);
  else
    RoundFloat16Scalar(from, target, count);
}

void UseScalarConversion(bool scalar) { scalar_only = scalar; }
bool HasVectorConversion() { return VectorSupported(); }

}  // namespace vgpu
