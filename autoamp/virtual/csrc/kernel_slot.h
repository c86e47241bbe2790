// One wrapped CPU kernel: what it is called with, how it is run, and what it has cost so far.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "paddle_api.h"

namespace vgpu {

enum class InputKind : uint8_t {
  kDense,
  kOptional,
  kVector,
  kOptionalVector,
  kRows,  // a sparse gradient: SelectedRows
  kRowsVector,
  kAnyVector,  // dense tensors and sparse gradients mixed
};
enum class OutputKind : uint8_t { kDense, kVector, kRows };

// How the clock counts a kernel's work; see cost_model.h.
enum class WorkKind : uint8_t {
  kMemory,        // bound by bytes moved
  kView,          // no kernel at all on a GPU: strides change, nothing moves
  kMatmul,
  kMatmulGrad,
  kConv,
  kConvGrad,
  kRnn,
  kRnnGrad,
  kEinsum,
  kEinsumGrad,
  kBilinear,
  kBilinearGrad,
  kMultiDot,
};

struct KernelSlot {
  std::string name;
  // The name that AMP op lists use for this kernel's operator.
  std::string amp_name;
  phi::KernelKey key;
  phi::Kernel cpu_kernel;
  void* variadic{nullptr};

  // Widen 16-bit inputs to float32, run the float32 kernel, round the results.
  bool converts{false};
  std::vector<InputKind> inputs;
  std::vector<phi::AttributeType> attributes;
  std::vector<OutputKind> outputs;
  size_t float_attributes{0};

  bool is_cast{false};
  // Which input is the float32 master copy of the parameter; -1: not an optimizer.
  int master_input{-1};
  bool wants_empty_output{false};
  bool shape_depends_on_data{false};
  // Its CPU code was compiled for AVX-512 alone, and this processor has none.
  bool lacks_instructions{false};
  WorkKind work{WorkKind::kMemory};

  // Guarded by the lock in counters.cc.
  uint64_t calls{0};
  uint64_t calls_since_mark{0};
  double flops{0}, bytes{0}, seconds{0};
  double largest{0};
  uint64_t non_finite{0};
};

// Every registered slot; the index is the number that a stub carries.
std::vector<KernelSlot*>& Slots();

inline constexpr int kMaxSlots = 16384;
// Words of stack arguments that are passed on to a kernel.
inline constexpr int kStackWords = 32;
#if defined(__aarch64__)
inline constexpr int kGeneralRegisters = 8;
#else
inline constexpr int kGeneralRegisters = 6;
#endif
inline constexpr int kFloatRegisters = 8;

inline bool IsFloatAttribute(phi::AttributeType type) {
  return type == phi::AttributeType::FLOAT32 || type == phi::AttributeType::FLOAT64;
}

}  // namespace vgpu
