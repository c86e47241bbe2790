// The parts of Paddle's installed C++ headers that the plug-in uses, and the differences
// between the Paddle versions it is built against.
#pragma once

#include "paddle/phi/backends/all_context.h"
#include "paddle/phi/backends/context_pool.h"
#include "paddle/phi/backends/device_ext.h"
#include "paddle/phi/core/compat/convert_utils.h"
#include "paddle/phi/core/dense_tensor.h"
#include "paddle/phi/core/enforce.h"
#include "paddle/phi/core/kernel_context.h"
#include "paddle/phi/core/kernel_factory.h"
#include "paddle/phi/core/selected_rows.h"

// The build passes AUTOAMP_PADDLE_2 for Paddle 2.x: no strides there, and kernels are plain
// function pointers where 3.x has std::function.
#ifndef AUTOAMP_PADDLE_2
#define AUTOAMP_HAS_STRIDES 1
#endif

namespace vgpu {

using phi::DataType;
using phi::DenseTensor;
using phi::KernelContext;
using phi::TensorBase;

// The device type that Paddle sees; scripts write paddle.set_device("vgpu").
inline constexpr const char* kDeviceType = "vgpu";

inline bool IsHalf(DataType type) {
  return type == DataType::FLOAT16 || type == DataType::BFLOAT16;
}

inline bool IsContiguous(const DenseTensor& tensor) {
#ifdef AUTOAMP_HAS_STRIDES
  return tensor.meta().is_contiguous();
#else
  return true;
#endif
}

#ifdef AUTOAMP_PADDLE_2
namespace errors = phi::errors;
#else
namespace errors = common::errors;
#endif

// Throws the C++ exception that Paddle turns into Python's NotImplementedError.
[[noreturn]] inline void Refuse(const std::string& message) {
  PADDLE_THROW(errors::Unimplemented("%s", message));
}

// The same with Python's MemoryError.
[[noreturn]] inline void Exhausted(const std::string& message) {
  PADDLE_THROW(errors::ResourceExhausted("%s", message));
}

}  // namespace vgpu
