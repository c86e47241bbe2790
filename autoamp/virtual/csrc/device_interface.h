// Fills Paddle's table of device functions (device_ext.h): memory, streams, events, copies.
#pragma once

#include "paddle_api.h"

namespace vgpu {

void FillInterface(C_DeviceInterface* table);

}  // namespace vgpu
