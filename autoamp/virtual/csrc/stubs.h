// Entry points in assembler, one for each slot and route. Paddle calls a kernel through a bare
// function pointer, so the pointer itself must say which kernel is meant: each stub loads its
// slot's number and jumps to common code.
#pragma once

namespace vgpu {

// The typed entry of a slot (eager route).
void* VariadicStub(int slot);
// The entry that takes a KernelContext*, for Paddle versions that hold plain pointers.
void* ContextStub(int slot);

}  // namespace vgpu
