#include "device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "device_model.h"

namespace vgpu {
namespace {

std::atomic<size_t> capacity{0}, used{0}, peak{0}, host_refusals{0};

thread_local bool on_trial = false;

// From this size on pages come straight from the kernel: untouched ones then cost nothing,
// which planning mode lives on, and freed ones go back at once.
constexpr size_t kMapped = 64 << 10;
// Asking the kernel how much is left costs about 20 us, so small requests are not checked.
constexpr size_t kChecked = 1 << 20;

// One number of a small file such as /proc/meminfo ("Key: value kB") or a cgroup file.
size_t ReadNumber(const char* path, const char* key) {
  FILE* file = std::fopen(path, "re");
  if (!file) return std::numeric_limits<size_t>::max();
  char line[256];
  size_t found = std::numeric_limits<size_t>::max();
  while (std::fgets(line, sizeof line, file)) {
    if (key && std::strncmp(line, key, std::strlen(key)) != 0) continue;
    unsigned long long value;
    if (std::sscanf(key ? line + std::strlen(key) : line, "%llu", &value) == 1)
      found = static_cast<size_t>(value);
    break;
  }
  std::fclose(file);
  return found;
}

size_t HostTotal() {
  static const size_t total = ReadNumber("/proc/meminfo", "MemTotal:") << 10;
  return total;
}

// What the host can still give, leaving a sixteenth (for the widened copies of 16-bit
// tensors, the loader and the rest of the machine).
size_t HostAvailable() {
  size_t free = ReadNumber("/proc/meminfo", "MemAvailable:");
  if (free == std::numeric_limits<size_t>::max()) return free;
  free <<= 10;
  // A container's limit may be far below the machine's memory (cgroup v2, then v1).
  size_t limit = ReadNumber("/sys/fs/cgroup/memory.max", nullptr);
  size_t held = ReadNumber("/sys/fs/cgroup/memory.current", nullptr);
  if (limit == std::numeric_limits<size_t>::max()) {
    limit = ReadNumber("/sys/fs/cgroup/memory/memory.limit_in_bytes", nullptr);
    held = ReadNumber("/sys/fs/cgroup/memory/memory.usage_in_bytes", nullptr);
  }
  if (limit < HostTotal() && held <= limit) free = std::min(free, limit - held);
  const size_t reserve = HostTotal() / 16;
  return free > reserve ? free - reserve : 0;
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
      !Device().numerics || on_trial || bytes < kChecked || bytes <= HostAvailable();
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
    return nullptr;
  }
  size_t seen = on_trial ? now : peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
  return p;
}

void FreeDevice(void* pointer, size_t bytes) {
  if (bytes >= kMapped)
    munmap(pointer, bytes);
  else
    std::free(pointer);
  used.fetch_sub(bytes);
}

TrialAllocation::TrialAllocation() { on_trial = true; }
TrialAllocation::~TrialAllocation() { on_trial = false; }

MemoryState ReadMemory() { return {capacity, used, peak, host_refusals}; }

size_t AvailableBytes() {
  const size_t total = capacity.load(), held = used.load();
  const size_t rest = total > held ? total - held : 0;
  return Device().numerics ? std::min(rest, HostAvailable()) : rest;
}

void SetCapacity(size_t bytes) { capacity = bytes; }
void ResetPeak() { peak = used.load(); }

}  // namespace vgpu
