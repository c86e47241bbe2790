// float32 <-> 16-bit casts done by our own vector code, without temporaries.
#pragma once

#include "operands.h"

namespace vgpu {

// True if the call was a cast that was done here. (Also: Paddle 2.6's CPU kernel truncates
// where a GPU rounds, so it must not be used for float32 to 16 bits.)
bool CastDirectly(const Operands& call);

}  // namespace vgpu
