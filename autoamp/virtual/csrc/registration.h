// Offers every CPU kernel of the installed Paddle on the virtual device.
#pragma once

namespace vgpu {

void RegisterKernels();

}  // namespace vgpu
