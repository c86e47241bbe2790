#include "device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "device_model.h"
#include "host_memory.h"
#include "paddle_api.h"
#include "promised.h"

namespace vgpu {
namespace {

std::atomic<size_t> capacity{0}, used{0}, peak{0}, host_refusals{0};
std::atomic<bool> host_refused_last{false};

thread_local bool on_trial = false;

// From this size on pages come straight from the kernel: untouched ones then cost nothing,
// which planning mode lives on, and freed ones go back at once.
constexpr size_t kMapped = 64 << 10;
// Asking the kernel how much is left costs 20 us or more, so small requests are not checked.
constexpr size_t kChecked = 1 << 20;
// Widened copies come and go with every call.
constexpr size_t kCopyChecked = 16 << 20;

// Would the host have the pages, beside those that it still owes to earlier requests?
bool HostFits(size_t bytes) {
  const size_t available = HostAvailable();
  if (bytes > available) return false;
  const size_t rest = available - bytes;
  return PromisedBytes() <= rest || UntouchedBytes() <= rest;
}

void* Pages(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  // Huge pages halve the cost of a first touch; in planning mode they would turn every
  // small write into 2 MiB of host memory.
  if (bytes >= (4 << 20)) madvise(p, bytes, Device().numerics ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return p;
}

}  // namespace

void* AllocateDevice(size_t bytes) {
  const size_t now = used.fetch_add(bytes) + bytes;
  const bool fits = now <= capacity.load();
  const bool host_fits =
      !Device().numerics || on_trial || bytes < kChecked || HostFits(bytes);
  void* p = nullptr;
  if (fits && host_fits) {
    if (bytes >= kMapped)
      p = Pages(bytes);
    else if (posix_memalign(&p, 256, bytes ? bytes : 1) != 0)
      p = nullptr;
  }
  if (!p) {
    used.fetch_sub(bytes);
    if (fits) host_refusals.fetch_add(1);
    host_refused_last = fits;
    return nullptr;
  }
  // Planning mode touches no large tensor.
  if (bytes >= kChecked && Device().numerics) Promise(p, bytes);
  size_t seen = on_trial ? now : peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
  return p;
}

void FreeDevice(void* pointer, size_t bytes) {
  if (bytes >= kChecked) ForgetPromise(pointer);
  if (bytes >= kMapped)
    munmap(pointer, bytes);
  else
    std::free(pointer);
  used.fetch_sub(bytes);
}

TrialAllocation::TrialAllocation() { on_trial = true; }
TrialAllocation::~TrialAllocation() { on_trial = false; }

void RequireHostCopy(size_t bytes) {
  if (bytes < kCopyChecked || !Device().numerics || HostFits(bytes)) return;
  host_refusals.fetch_add(1);
  host_refused_last = true;
  Exhausted("The host has no memory for the float32 copy (" + std::to_string(bytes >> 20) +
            " MiB) that emulating a 16-bit tensor of the virtual device needs.");
}

MemoryState ReadMemory() { return {capacity, used, peak, host_refusals, host_refused_last}; }

size_t AvailableBytes() {
  const size_t total = capacity.load(), held = used.load();
  const size_t rest = total > held ? total - held : 0;
  if (!Device().numerics) return rest;
  const size_t host = HostAvailable(), owed = UntouchedBytes();
  return std::min(rest, host > owed ? host - owed : 0);
}

void SetCapacity(size_t bytes) { capacity = bytes; }
void ResetPeak() { peak = used.load(); }

}  // namespace vgpu
