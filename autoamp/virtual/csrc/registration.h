// Offers every CPU kernel of the installed Paddle on the virtual device.
#pragma once

#include <string>
#include <vector>

namespace vgpu {

struct RegistrationResult {
  int registered{0};
  // Names of kernels with at least one version that could not be wrapped.
  std::vector<std::string> left_out;
};

const RegistrationResult& Registration();
void RegisterKernels();

}  // namespace vgpu
