// The device's memory: host pages, counted against the GPU's capacity and the host's own.
#pragma once

#include <cstddef>

namespace vgpu {

struct MemoryState {
  size_t capacity_bytes;
  size_t used_bytes;
  size_t peak_bytes;
  // Allocations refused although the GPU would have had the room: the host had not.
  size_t host_refusals;
  // Of all refusals the last was one of these.
  bool host_refused_last;
};

// Null if there is no room; Paddle then throws its own out-of-memory error.
void* AllocateDevice(size_t bytes);
void FreeDevice(void* pointer, size_t bytes);

// While one lives, this thread's allocations leave the peak alone and need no host memory: nobody
// will touch what they get.
class TrialAllocation {
 public:
  TrialAllocation();
  ~TrialAllocation();
};

// Throws Paddle's ResourceExhausted if the host has no room for a widened copy of this size.
void RequireHostCopy(size_t bytes);

MemoryState ReadMemory();
// Bytes that an allocation could still get: the smaller of the GPU's rest and the host's.
size_t AvailableBytes();
void SetCapacity(size_t bytes);
void ResetPeak();

}  // namespace vgpu
