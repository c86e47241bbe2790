// What ran: calls, work and modelled time by kernel, and the ranges of float outputs.
#pragma once

#include <string>

#include "operands.h"

namespace vgpu {

enum class CopyKind { kToDevice, kToHost, kWithin, kFill };

// Counts one finished call and advances the clock.
void CountCall(const Operands& call);
void CountCopy(CopyKind kind, size_t bytes);

bool TracksRanges();
void SetTrackRanges(bool on);
// Looks at one result before it is rounded to `stored`.
void TrackRange(const KernelSlot& slot, const DenseTensor& result, DataType stored);

double ClockSeconds();
// Of these, the seconds in which the GPU had work.
double BusySeconds();
void ResetClock();
void SynchronizeClock();
// Sets the counts that AmpCalls reports back to zero.
void MarkCalls();

// Tab-separated lines; see c_api.cc for the columns.
std::string KernelReport();
std::string RangeReport();
std::string CallReport();

// Keeps the counters' lock usable in a forked child (DataLoader workers).
void GuardForks();

}  // namespace vgpu
