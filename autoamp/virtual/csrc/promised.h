// Device memory that was granted and not written yet: the host gives pages at the first touch only,
// so its own count of what is free does not know of them.
#pragma once

#include <cstddef>

namespace vgpu {

void Promise(void* pages, size_t bytes);
// For pages that were never promised, too.
void ForgetPromise(void* pages);

// Bytes of all promises, touched or not: cheap, and never too small.
size_t PromisedBytes();
// Bytes of them that still need pages of the host.
size_t UntouchedBytes();

}  // namespace vgpu
