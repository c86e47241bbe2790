#include "model_parameters.h"

#include <cctype>
#include <cstdlib>
#include <map>

#include "device_model.h"

namespace vgpu {
namespace {

const std::map<std::string, double*>& ByName() {
  static ModelParameters& p = Parameters();
  static DeviceModel& d = Device();
  static const std::map<std::string, double*> names = {
      {"bandwidth_efficiency", &p.bandwidth_efficiency},
      {"bandwidth_factor", &p.bandwidth_factor},
      {"tensor_feed", &p.tensor_feed},
      {"sustained_clock", &p.sustained_clock},
      {"direct_share", &p.direct_share},
      {"depthwise_sum_share", &p.depthwise_sum_share},
      {"transposed_per_clock_per_sm", &p.transposed_per_clock_per_sm},
      {"pipeline_fill", &p.pipeline_fill},
      {"plain_matmul_efficiency", &p.plain_matmul_efficiency},
      {"plain_conv_efficiency", &p.plain_conv_efficiency},
      {"tensor_matmul_efficiency", &p.tensor_matmul_efficiency},
      {"tensor_conv_efficiency", &p.tensor_conv_efficiency},
      {"l2_bytes_per_clock_per_sm", &p.l2_bytes_per_clock_per_sm},
      {"l2_bytes", &p.l2_bytes},
      {"l2_speedup", &p.l2_speedup},
      {"misaligned_efficiency", &p.misaligned_efficiency},
      {"winograd_speedup", &p.winograd_speedup},
      {"kernel_floor_s", &p.kernel_floor_s},
      {"host_eager_s", &p.host_eager_s},
      {"host_program_s", &p.host_program_s},
      {"wait_s", &p.wait_s},
      {"bus_bytes_per_s", &p.bus_bytes_per_s},
      {"bandwidth_bytes_per_s", &d.bandwidth_bytes_per_s},
      {"float32_flops_per_s", &d.float32_flops_per_s},
      {"tf32_flops_per_s", &d.tf32_flops_per_s},
      {"float16_flops_per_s", &d.float16_flops_per_s},
      {"bfloat16_flops_per_s", &d.bfloat16_flops_per_s},
      {"boost_clock_mhz", &d.boost_clock_mhz},
      {"sm_count", &d.sm_count}};
  return names;
}

}  // namespace

ModelParameters& Parameters() {
  static ModelParameters parameters;
  return parameters;
}

bool SetParameter(const std::string& name, double value) {
  auto found = ByName().find(name);
  if (found == ByName().end()) return false;
  *found->second = value;
  return true;
}

void LoadParameters() {
  for (auto& [name, target] : ByName()) {
    std::string variable = "AUTOAMP_VGPU_MODEL_";
    for (char c : name) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (const char* value = std::getenv(variable.c_str())) *target = std::strtod(value, nullptr);
  }
}

}  // namespace vgpu
