// The work of one call, counted from shapes and dtypes; what the clock turns into seconds.
#pragma once

#include <string>

#include "operands.h"

namespace vgpu {

// A matrix product of [m, k] by [k, n], `batch` times over at once, all of it `times` times in
// sequence: one time step of a recurrent layer needs the one before.
struct Product {
  double m{0}, n{0}, k{0}, batch{1}, times{1};
};
// The most kinds of products that one call has; a recurrent layer's backward has eight.
inline constexpr int kMaxProducts = 8;

enum class Unit : uint8_t {
  kPlain,     // ordinary cores, float32 or float64
  kTf32,      // Tensor Cores on float32 data, if the GPU and Paddle's switches allow
  kFloat16,
  kBfloat16,
};

struct Work {
  const char* name{""};
  WorkKind kind{WorkKind::kMemory};
  Unit unit{Unit::kPlain};
  double element_bytes{4};
  double flops{0};
  // Bytes of all operands, each once.
  double bytes{0};
  // Bytes that the usual GPU algorithm moves on top of that (a second pass over its input).
  double extra_bytes{0};
  // Bytes of the operands that a convolution in NCHW has to transpose for Tensor Cores; 0 for
  // NHWC.
  double transposed_bytes{0};
  // Largest power of two (up to 64) that divides the lengths of the operands' rows: what
  // Tensor Core kernels need is a multiple of 8 in 16-bit data.
  double row_multiple{64};
  // A convolution that Winograd's method may do with fewer multiplications: 3x3, stride 1.
  bool winograd{false};
  // Bytes of a convolution's input and output, which its algorithms copy into scratch memory; 0
  // for narrow groups, whose kernels need none.
  double operand_bytes{0};
  // A window of more than one position at stride 1: the Fourier methods apply.
  bool dense_window{false};
  Product products[kMaxProducts];
  int product_count{0};
  // Called by a compiled program rather than from Python.
  bool from_program{false};
};

Work MeasureWork(const Operands& call);

}  // namespace vgpu
