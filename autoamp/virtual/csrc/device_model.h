// What the virtual GPU is: numbers handed over by the parent in AUTOAMP_VGPU_* variables.
#pragma once

#include <cstddef>
#include <string>

namespace vgpu {

struct DeviceModel {
  std::string name;
  std::string architecture;
  size_t memory_bytes;
  // What of it the driver, the CUDA context and the libraries leave for Paddle's allocator.
  size_t usable_bytes;
  double bandwidth_bytes_per_s;
  // Dense peaks by the kind of arithmetic; 0 where the GPU has none.
  double float32_flops_per_s;
  double tf32_flops_per_s;
  double float16_flops_per_s;
  double bfloat16_flops_per_s;
  double sm_count;
  double boost_clock_mhz;
  // Planning mode is numerics == false: large kernels allocate and advance the clock only.
  bool numerics;
  // Whether float32 matrix products and convolutions may use TF32, as Paddle's switches say.
  bool tf32_matmul;
  bool tf32_conv;
};

DeviceModel& Device();

// Reads the environment; called once by InitPlugin.
void LoadDeviceModel();

}  // namespace vgpu
