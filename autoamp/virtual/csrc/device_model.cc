#include "device_model.h"

#include <cstdlib>

namespace vgpu {
namespace {

std::string Text(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value && *value ? value : fallback;
}

double Number(const char* name, double fallback) {
  const char* value = std::getenv(name);
  return value && *value ? std::strtod(value, nullptr) : fallback;
}

}  // namespace

DeviceModel& Device() {
  static DeviceModel model;
  return model;
}

void LoadDeviceModel() {
  // The fallbacks are a V100-SXM2-16GB, so that the plug-in also works without a parent.
  DeviceModel& d = Device();
  d.name = Text("AUTOAMP_VGPU_NAME", "Tesla V100-SXM2-16GB");
  d.architecture = Text("AUTOAMP_VGPU_ARCHITECTURE", "Volta");
  d.memory_bytes = static_cast<size_t>(Number("AUTOAMP_VGPU_MEMORY_BYTES", 16.0 * (1ull << 30)));
  d.usable_bytes = static_cast<size_t>(
      Number("AUTOAMP_VGPU_USABLE_BYTES", static_cast<double>(d.memory_bytes)));
  d.bandwidth_bytes_per_s = Number("AUTOAMP_VGPU_BANDWIDTH_BYTES_PER_S", 900e9);
  d.float32_flops_per_s = Number("AUTOAMP_VGPU_FLOPS_FLOAT32", 15.7e12);
  d.tf32_flops_per_s = Number("AUTOAMP_VGPU_FLOPS_TF32", 0);
  d.float16_flops_per_s = Number("AUTOAMP_VGPU_FLOPS_FLOAT16", 125e12);
  d.bfloat16_flops_per_s = Number("AUTOAMP_VGPU_FLOPS_BFLOAT16", 0);
  d.sm_count = Number("AUTOAMP_VGPU_SM_COUNT", 80);
  d.boost_clock_mhz = Number("AUTOAMP_VGPU_BOOST_CLOCK_MHZ", 1530);
  d.numerics = Number("AUTOAMP_VGPU_NUMERICS", 1) != 0;
  d.tf32_matmul = false;
  d.tf32_conv = d.tf32_flops_per_s > 0;
}

}  // namespace vgpu
