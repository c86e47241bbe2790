// From work to seconds: a roofline with tiles, waves, the second-level cache and alignment.
#pragma once

#include "work.h"

namespace vgpu {

// Seconds that the GPU is busy with a call; 0 for views.
double GpuSeconds(const Work& work);
// Whether its products run on Tensor Cores at full speed.
bool UsesTensorCores(const Work& work);
// Seconds that the host needs to issue it.
double HostSeconds(const Work& work);
// Seconds to move bytes between host and device, or within the device.
double BusSeconds(double bytes);
double StreamSeconds(double bytes);

}  // namespace vgpu
