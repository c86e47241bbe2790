// A recorded step: every call's work, to be timed again under other parameters (fitting).
#pragma once

#include <string>

#include "clock.h"

namespace vgpu {

void StartTrace();
bool IsTracing();
void Record(const Work& work);
// Copies appear as '>' (to the device), '<' (to the host) and '=' (within).
void RecordCopy(char direction, double bytes);
// Writes what was recorded and stops; false if the file cannot be written.
bool SaveTrace(const char* path);
// Reads a trace; its number, or -1.
int LoadTrace(const char* path);
// Seconds of a loaded trace under the present parameters; `as_program`: issued by a compiled
// program, whatever issued the recorded one.
double ReplayTrace(int number, bool as_program);

}  // namespace vgpu
