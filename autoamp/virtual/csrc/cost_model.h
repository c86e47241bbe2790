// The clock: how long a call would take on the GPU that the device model describes.
#pragma once

#include "operands.h"

namespace vgpu {

struct Work {
  WorkKind kind{WorkKind::kMemory};
  DataType type{DataType::UNDEFINED};
  double flops{0};
  double bytes{0};
};

// Counts a call's operations and bytes from its shapes and dtypes.
Work MeasureWork(const Operands& call);

// Seconds on the modelled GPU; views are free.
double ModelSeconds(const Work& work);
// Seconds for a copy or fill; `over_bus` crosses between host and device.
double CopySeconds(bool over_bus, double bytes);

}  // namespace vgpu
