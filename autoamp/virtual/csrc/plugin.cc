// The entry point that Paddle calls after loading the library.
#include <cstdio>

#include "counters.h"
#include "device_interface.h"
#include "device_memory.h"
#include "device_model.h"
#include "model_parameters.h"
#include "paddle_api.h"
#include "registration.h"
#include "workspace.h"

extern "C" __attribute__((visibility("default"))) void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  vgpu::LoadDeviceModel();
  vgpu::LoadParameters();
  vgpu::SetCapacity(vgpu::Device().usable_bytes);
  vgpu::LoadConvWorkspace();
  static char sub_type[] = "autoamp";
  params->device_type = const_cast<char*>(vgpu::kDeviceType);
  params->sub_device_type = sub_type;
  vgpu::FillInterface(params->interface);
  vgpu::GuardForks();
  try {
    vgpu::RegisterKernels();
  } catch (const std::exception& error) {
    // An exception must not leave a function that C code calls.
    std::fprintf(stderr, "autoamp: the virtual accelerator cannot register its kernels: %s\n",
                 error.what());
  }
}
