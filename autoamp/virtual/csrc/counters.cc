#include "counters.h"

#include <pthread.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "clock.h"
#include "convert.h"
#include "trace.h"
#include "workspace.h"

namespace vgpu {
namespace {

std::mutex lock;
Timeline timeline;
// The library is loaded by the thread that imports paddle.
const std::thread::id main_thread = std::this_thread::get_id();
std::atomic<bool> track_ranges{false};

const char* TypeName(DataType type) {
  switch (type) {
    case DataType::FLOAT16: return "float16";
    case DataType::BFLOAT16: return "bfloat16";
    case DataType::FLOAT32: return "float32";
    case DataType::FLOAT64: return "float64";
    case DataType::INT32: return "int32";
    case DataType::INT64: return "int64";
    case DataType::BOOL: return "bool";
    default: return "other";
  }
}

}  // namespace

void CountCall(const Operands& call) {
  const Work work = MeasureWork(call);
  HoldWorkspace(call, work);
  auto& slot = const_cast<KernelSlot&>(call.slot);
  std::lock_guard<std::mutex> guard(lock);
  if (IsTracing()) Record(work);
  ++slot.calls;
  ++slot.calls_since_mark;
  slot.flops += work.flops;
  slot.bytes += work.bytes + work.extra_bytes;
  slot.seconds += timeline.Issue(work);
}

void CountCopy(CopyKind kind, size_t bytes) {
  // Loaders copy batches from a thread of their own, over a stream of their own.
  if (std::this_thread::get_id() != main_thread) return;
  std::lock_guard<std::mutex> guard(lock);
  const double size = static_cast<double>(bytes);
  switch (kind) {
    case CopyKind::kToDevice:
      if (IsTracing()) RecordCopy('>', size);
      timeline.CopyToDevice(size);
      break;
    case CopyKind::kToHost:
      if (IsTracing()) RecordCopy('<', size);
      timeline.CopyToHost(size);
      break;
    case CopyKind::kWithin:
    case CopyKind::kFill:
      if (IsTracing()) RecordCopy('=', size);
      timeline.CopyWithin(size);
      break;
  }
}

bool TracksRanges() { return track_ranges.load(std::memory_order_relaxed); }

void SetTrackRanges(bool on) {
  std::lock_guard<std::mutex> guard(lock);
  if (on)
    for (auto* slot : Slots()) slot->largest = 0, slot->non_finite = 0;
  track_ranges = on;
}

void TrackRange(const KernelSlot& const_slot, const DenseTensor& result, DataType stored) {
  const DataType type = result.dtype();
  const int64_t count = result.numel();
  if (count == 0 || !IsContiguous(result)) return;
  double largest = 0;
  uint64_t non_finite = 0;
  auto look = [&](double value, double limit) {
    const double magnitude = std::fabs(value);
    if (!std::isfinite(magnitude) || magnitude >= limit)
      ++non_finite;
    else if (magnitude > largest)
      largest = magnitude;
  };
  // Values from here on round to infinity when they are stored as float16.
  const double limit = stored == DataType::FLOAT16 ? 65520.0 : INFINITY;
  if (type == DataType::FLOAT32) {
    const auto* values = static_cast<const float*>(result.data());
    for (int64_t i = 0; i < count; ++i) look(values[i], limit);
  } else if (type == DataType::FLOAT64) {
    const auto* values = static_cast<const double*>(result.data());
    for (int64_t i = 0; i < count; ++i) look(values[i], limit);
  } else if (IsHalf(type)) {
    const auto* values = static_cast<const uint16_t*>(result.data());
    for (int64_t i = 0; i < count; ++i) {
      float wide;
      Widen(type, values + i, &wide, 1);
      look(wide, limit);
    }
  } else {
    return;
  }
  auto& slot = const_cast<KernelSlot&>(const_slot);
  std::lock_guard<std::mutex> guard(lock);
  if (largest > slot.largest) slot.largest = largest;
  slot.non_finite += non_finite;
}

double ClockSeconds() {
  std::lock_guard<std::mutex> guard(lock);
  return timeline.seconds();
}

double BusySeconds() {
  std::lock_guard<std::mutex> guard(lock);
  return timeline.busy_seconds();
}

void SynchronizeClock() {
  std::lock_guard<std::mutex> guard(lock);
  timeline.Synchronize();
}

void ResetClock() {
  std::lock_guard<std::mutex> guard(lock);
  timeline.Reset();
  for (auto* slot : Slots()) slot->calls = 0, slot->flops = slot->bytes = slot->seconds = 0;
}

void MarkCalls() {
  std::lock_guard<std::mutex> guard(lock);
  for (auto* slot : Slots()) slot->calls_since_mark = 0;
}

std::string KernelReport() {
  std::lock_guard<std::mutex> guard(lock);
  std::string text;
  char numbers[160];
  for (auto* slot : Slots()) {
    if (!slot->calls) continue;
    std::snprintf(numbers, sizeof numbers, "\t%s\t%llu\t%.0f\t%.0f\t%.9g\n",
                  TypeName(slot->key.dtype()), static_cast<unsigned long long>(slot->calls),
                  slot->flops, slot->bytes, slot->seconds);
    text += slot->name + numbers;
  }
  return text;
}

std::string RangeReport() {
  std::lock_guard<std::mutex> guard(lock);
  // One line an operator: a kernel has a slot for each dtype.
  std::map<std::string, std::pair<double, uint64_t>> by_name;
  for (auto* slot : Slots()) {
    if (slot->largest == 0 && slot->non_finite == 0) continue;
    auto& entry = by_name[slot->amp_name];
    entry.first = std::max(entry.first, slot->largest);
    entry.second += slot->non_finite;
  }
  std::string text;
  char numbers[96];
  for (auto& [name, entry] : by_name) {
    std::snprintf(numbers, sizeof numbers, "\t%.9g\t%llu\n", entry.first,
                  static_cast<unsigned long long>(entry.second));
    text += name + numbers;
  }
  return text;
}

std::string CallReport() {
  std::lock_guard<std::mutex> guard(lock);
  std::map<std::string, std::array<uint64_t, 4>> by_name;
  for (auto* slot : Slots()) {
    if (!slot->calls_since_mark) continue;
    const DataType type = slot->key.dtype();
    const int column = type == DataType::FLOAT16    ? 0
                       : type == DataType::BFLOAT16 ? 1
                       : type == DataType::FLOAT32  ? 2
                                                    : 3;
    by_name[slot->amp_name][column] += slot->calls_since_mark;
  }
  std::string text;
  for (auto& [name, calls] : by_name) {
    text += name;
    for (uint64_t n : calls) text += "\t" + std::to_string(n);
    text += "\n";
  }
  return text;
}

void GuardForks() {
  pthread_atfork([] { lock.lock(); }, [] { lock.unlock(); }, [] { lock.unlock(); });
}

}  // namespace vgpu
