// Two timelines, as on a real machine: the host issues kernels and runs ahead; the GPU works
// through them; the host waits where it reads a result.
#pragma once

#include "cost_model.h"

namespace vgpu {

class Timeline {
 public:
  // Returns the call's own GPU seconds.
  double Issue(const Work& work);
  // A copy from pageable memory keeps the host busy; the GPU goes on meanwhile.
  void CopyToDevice(double bytes);
  // Reading a result waits for everything issued before.
  void CopyToHost(double bytes);
  void CopyWithin(double bytes);
  // The host waits until the GPU has nothing left to do.
  void Synchronize() { host_ = seconds(); }
  void Reset() { host_ = gpu_ = busy_ = 0; }

  double seconds() const { return host_ > gpu_ ? host_ : gpu_; }
  // Seconds in which the GPU had work.
  double busy_seconds() const { return busy_; }

 private:
  void Run(double seconds);

  double host_{0}, gpu_{0}, busy_{0};
};

}  // namespace vgpu
