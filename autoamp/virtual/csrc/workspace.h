// Scratch memory of convolutions. cuDNN's algorithms get it from Paddle's allocator for the length
// of one call, so it matters only where a call comes while memory is nearly full.
#pragma once

#include <cstddef>

#include "operands.h"
#include "work.h"

namespace vgpu {

enum class ConvSearch {
  kNone,         // cuDNN's heuristic names an algorithm
  kFits,         // FLAGS_cudnn_exhaustive_search: the largest workspace below the limit is held
  kWholeLimit,   // the same in releases before 2.3, which hold the limit itself
};

// FLAGS_conv_workspace_size_limit (bytes; negative: what the device has left) and the search.
void SetConvWorkspace(long long limit_bytes, ConvSearch search);
// Reads the two flags from the environment, as Paddle does.
void LoadConvWorkspace();

// Bytes that one call takes, modelled from its shapes; 0 for what is no convolution.
size_t WorkspaceBytes(const Operands& call, const Work& work);

// Holds the call's workspace against the device's memory. Throws Paddle's own out-of-memory
// error if it does not fit.
void HoldWorkspace(const Operands& call, const Work& work);

// By how much workspaces raised the peak over what the allocator held at its own peak.
size_t WorkspacePeak();
// Paddle's peak of live tensors, where a workspace would have raised it and it was set back.
size_t AllocatedPeakBefore();
void ResetWorkspacePeak();

}  // namespace vgpu
