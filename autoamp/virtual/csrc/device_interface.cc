#include "device_interface.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "counters.h"
#include "device_memory.h"
#include "device_model.h"
#include "planning.h"

namespace vgpu {
namespace {

C_Status Ok() { return C_SUCCESS; }
C_Status OkDevice(const C_Device) { return C_SUCCESS; }
C_Status OkStream(const C_Device, C_Stream) { return C_SUCCESS; }
C_Status OkEvent(const C_Device, C_Event) { return C_SUCCESS; }
C_Status OkStreamEvent(const C_Device, C_Stream, C_Event) { return C_SUCCESS; }

C_Status GetDevice(const C_Device device) {
  device->id = 0;
  return C_SUCCESS;
}

// Everything runs at once in the calling thread, so a stream or event is only a distinct
// address that Paddle can hold and compare.
template <typename Handle>
C_Status Create(const C_Device, Handle* handle) {
  *handle = reinterpret_cast<Handle>(std::malloc(8));
  return *handle ? C_SUCCESS : C_FAILED;
}
template <typename Handle>
C_Status Destroy(const C_Device, Handle handle) {
  std::free(handle);
  return C_SUCCESS;
}

C_Status AddCallback(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  C_Status status = C_SUCCESS;
  callback(device, stream, data, &status);
  return status;
}

C_Status Allocate(const C_Device, void** pointer, size_t bytes) {
  // Success with a null pointer is what makes Paddle free its idle chunks, try again, and
  // then throw its own out-of-memory error; C_FAILED surfaces as "External error".
  *pointer = AllocateDevice(bytes);
  return C_SUCCESS;
}
C_Status Deallocate(const C_Device, void* pointer, size_t bytes) {
  FreeDevice(pointer, bytes);
  return C_SUCCESS;
}
C_Status AllocateHost(const C_Device, void** pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  return *pointer || !bytes ? C_SUCCESS : C_FAILED;
}
C_Status DeallocateHost(const C_Device, void* pointer, size_t) {
  std::free(pointer);
  return C_SUCCESS;
}

C_Status Fill(const C_Device, void* pointer, unsigned char value, size_t bytes) {
  if (!SkipsCopy(bytes)) std::memset(pointer, value, bytes);
  CountCopy(CopyKind::kFill, bytes);
  return C_SUCCESS;
}

C_Status ToDevice(const C_Device, void* to, const void* from, size_t bytes) {
  if (!SkipsCopy(bytes)) std::memcpy(to, from, bytes);
  CountCopy(CopyKind::kToDevice, bytes);
  return C_SUCCESS;
}
C_Status ToHost(const C_Device, void* to, const void* from, size_t bytes) {
  // What planning mode never computed reads as zeros: defined, finite, and the same each time.
  if (SkipsCopy(bytes))
    std::memset(to, 0, bytes);
  else
    std::memcpy(to, from, bytes);
  CountCopy(CopyKind::kToHost, bytes);
  return C_SUCCESS;
}
C_Status Within(const C_Device, void* to, const void* from, size_t bytes) {
  if (!SkipsCopy(bytes)) std::memmove(to, from, bytes);
  CountCopy(CopyKind::kWithin, bytes);
  return C_SUCCESS;
}
C_Status ToDeviceAsync(const C_Device d, C_Stream, void* to, const void* from, size_t bytes) {
  return ToDevice(d, to, from, bytes);
}
C_Status ToHostAsync(const C_Device d, C_Stream, void* to, const void* from, size_t bytes) {
  return ToHost(d, to, from, bytes);
}
C_Status WithinAsync(const C_Device d, C_Stream, void* to, const void* from, size_t bytes) {
  return Within(d, to, from, bytes);
}

C_Status DeviceCount(size_t* count) {
  *count = 1;
  return C_SUCCESS;
}
C_Status DeviceList(size_t* ids) {
  ids[0] = 0;
  return C_SUCCESS;
}
C_Status MemoryStats(const C_Device, size_t* total, size_t* free) {
  *total = ReadMemory().capacity_bytes;
  *free = AvailableBytes();
  return C_SUCCESS;
}
C_Status MinChunk(const C_Device, size_t* bytes) {
  *bytes = 256;  // the alignment of cudaMalloc
  return C_SUCCESS;
}
C_Status Yes(const C_Device, bool* answer) {
  *answer = true;
  return C_SUCCESS;
}

}  // namespace

void FillInterface(C_DeviceInterface* table) {
  // An older Paddle hands in a shorter table than the headers describe.
  const size_t known = std::min(table->size, sizeof(C_DeviceInterface));
  std::memset(reinterpret_cast<char*>(table) + sizeof(table->size), 0,
              known - sizeof(table->size));
  table->initialize = Ok;
  table->finalize = Ok;
  table->init_device = OkDevice;
  table->deinit_device = OkDevice;
  table->set_device = OkDevice;
  table->get_device = GetDevice;
  table->create_stream = Create<C_Stream>;
  table->destroy_stream = Destroy<C_Stream>;
  table->query_stream = OkStream;
  table->stream_add_callback = AddCallback;
  table->create_event = Create<C_Event>;
  table->destroy_event = Destroy<C_Event>;
  table->record_event = OkStreamEvent;
  table->query_event = OkEvent;
  table->synchronize_device = OkDevice;
  table->synchronize_stream = OkStream;
  table->synchronize_event = OkEvent;
  table->stream_wait_event = OkStreamEvent;
  table->device_memory_allocate = Allocate;
  table->device_memory_deallocate = Deallocate;
  table->device_memory_set = Fill;
  table->host_memory_allocate = AllocateHost;
  table->host_memory_deallocate = DeallocateHost;
  table->memory_copy_h2d = ToDevice;
  table->memory_copy_d2h = ToHost;
  table->memory_copy_d2d = Within;
  table->async_memory_copy_h2d = ToDeviceAsync;
  table->async_memory_copy_d2h = ToHostAsync;
  table->async_memory_copy_d2d = WithinAsync;
  table->get_device_count = DeviceCount;
  table->get_device_list = DeviceList;
  table->device_memory_stats = MemoryStats;
  table->device_min_chunk_size = MinChunk;
#ifndef AUTOAMP_PADDLE_2
  table->is_float16_supported = Yes;
  table->is_bfloat16_supported = Yes;
#endif
}

}  // namespace vgpu
