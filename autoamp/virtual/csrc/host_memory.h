// What the host can still give, by /proc/meminfo and the limits of the process's own cgroups.
#pragma once

#include <cstddef>

namespace vgpu {

// Less a sixteenth of the machine, or of the container where that is smaller: for the widened
// copies of 16-bit tensors, the loader and everything else.
size_t HostAvailable();

}  // namespace vgpu
