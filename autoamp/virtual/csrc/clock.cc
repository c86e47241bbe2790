#include "clock.h"

#include <algorithm>

#include "model_parameters.h"

namespace vgpu {

void Timeline::Run(double seconds) {
  gpu_ = std::max(gpu_, host_) + seconds;
  busy_ += seconds;
}

double Timeline::Issue(const Work& work) {
  const double seconds = GpuSeconds(work);
  if (work.kind == WorkKind::kView) {
    // No kernel, but the operator still passes through the framework.
    host_ += HostSeconds(work) / 2;
    return 0;
  }
  host_ += HostSeconds(work);
  Run(seconds);
  return seconds;
}

void Timeline::CopyToDevice(double bytes) { host_ += BusSeconds(bytes); }

void Timeline::CopyToHost(double bytes) {
  host_ = std::max(host_, gpu_) + Parameters().wait_s + BusSeconds(bytes);
}

void Timeline::CopyWithin(double bytes) {
  host_ += Parameters().host_eager_s / 2;
  Run(StreamSeconds(2 * bytes) + Parameters().kernel_floor_s);
}

}  // namespace vgpu
