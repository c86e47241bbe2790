// The functions that autoamp/virtual/runtime.py calls through ctypes.
#include <string>

#include "convert.h"
#include "counters.h"
#include "device_memory.h"
#include "device_model.h"
#include "model_parameters.h"
#include "trace.h"
#include "workspace.h"

#define VGPU_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// Text results stay valid until the next call of the same thread.
const char* Keep(std::string text) {
  static thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

}  // namespace

VGPU_EXPORT double autoamp_vgpu_clock_s() { return vgpu::ClockSeconds(); }
VGPU_EXPORT void autoamp_vgpu_synchronize_clock() { vgpu::SynchronizeClock(); }
VGPU_EXPORT void autoamp_vgpu_reset_clock() { vgpu::ResetClock(); }
VGPU_EXPORT double autoamp_vgpu_busy_s() { return vgpu::BusySeconds(); }
// 1 if the parameter exists.
VGPU_EXPORT int autoamp_vgpu_set_parameter(const char* name, double value) {
  return vgpu::SetParameter(name, value);
}
// Columns: kernel, dtype, calls, flops, bytes, seconds.
VGPU_EXPORT const char* autoamp_vgpu_kernels() { return Keep(vgpu::KernelReport()); }

VGPU_EXPORT void autoamp_vgpu_track_ranges(int on) { vgpu::SetTrackRanges(on != 0); }
// Columns: operator (AMP-list name), largest finite magnitude, non-finite elements.
VGPU_EXPORT const char* autoamp_vgpu_ranges() { return Keep(vgpu::RangeReport()); }

VGPU_EXPORT void autoamp_vgpu_mark_calls() { vgpu::MarkCalls(); }
// Columns: operator (AMP-list name), float16, bfloat16, float32, other calls since the mark.
VGPU_EXPORT const char* autoamp_vgpu_calls() { return Keep(vgpu::CallReport()); }

VGPU_EXPORT void autoamp_vgpu_set_numerics(int on) { vgpu::Device().numerics = on != 0; }
VGPU_EXPORT void autoamp_vgpu_set_tf32(int matmul, int conv) {
  const bool available = vgpu::Device().tf32_flops_per_s > 0;
  vgpu::Device().tf32_matmul = matmul && available;
  vgpu::Device().tf32_conv = conv && available;
}

VGPU_EXPORT unsigned long long autoamp_vgpu_used_bytes() { return vgpu::ReadMemory().used_bytes; }
VGPU_EXPORT unsigned long long autoamp_vgpu_peak_bytes() { return vgpu::ReadMemory().peak_bytes; }
VGPU_EXPORT unsigned long long autoamp_vgpu_host_refusals() {
  return vgpu::ReadMemory().host_refusals;
}
VGPU_EXPORT unsigned long long autoamp_vgpu_host_refused_last() {
  return vgpu::ReadMemory().host_refused_last;
}
VGPU_EXPORT void autoamp_vgpu_reset_peak() {
  vgpu::ResetPeak();
  vgpu::ResetWorkspacePeak();
}
VGPU_EXPORT unsigned long long autoamp_vgpu_workspace_bytes() { return vgpu::WorkspacePeak(); }
VGPU_EXPORT unsigned long long autoamp_vgpu_allocated_peak_before() {
  return vgpu::AllocatedPeakBefore();
}
// `search` is a ConvSearch.
VGPU_EXPORT void autoamp_vgpu_conv_workspace(int limit_megabytes, int search) {
  vgpu::SetConvWorkspace(static_cast<long long>(limit_megabytes) * (1ll << 20),
                         static_cast<vgpu::ConvSearch>(search));
}

// Recording a step and timing it again; see trace.h.
VGPU_EXPORT void autoamp_vgpu_trace_start() { vgpu::StartTrace(); }
VGPU_EXPORT int autoamp_vgpu_trace_save(const char* path) { return vgpu::SaveTrace(path); }
VGPU_EXPORT int autoamp_vgpu_trace_load(const char* path) { return vgpu::LoadTrace(path); }
VGPU_EXPORT double autoamp_vgpu_trace_replay(int number, int as_program) {
  return vgpu::ReplayTrace(number, as_program != 0);
}

// For the tests of the conversion code; `type` is 0 for float16, 1 for bfloat16.
VGPU_EXPORT void autoamp_vgpu_widen(int type, const void* from, float* to, long long count) {
  vgpu::Widen(type ? phi::DataType::BFLOAT16 : phi::DataType::FLOAT16, from, to, count);
}
VGPU_EXPORT void autoamp_vgpu_round(int type, const float* from, void* to, long long count) {
  vgpu::Round(type ? phi::DataType::BFLOAT16 : phi::DataType::FLOAT16, from, to, count);
}
VGPU_EXPORT void autoamp_vgpu_scalar_conversion(int on) { vgpu::UseScalarConversion(on != 0); }
VGPU_EXPORT int autoamp_vgpu_has_vector_conversion() { return vgpu::HasVectorConversion(); }
