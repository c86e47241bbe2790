// Lends device tensors to a CPU kernel for one call, and gives the results back.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "kernel_slot.h"

namespace vgpu {

phi::CPUContext* CpuContext();

class TensorMapping {
 public:
  TensorMapping(const KernelSlot& slot, const phi::DeviceContext* device)
      : slot_(slot), device_(device) {}

  // A tensor the CPU kernel may read in place of `tensor`: an alias of the same memory, or a
  // float32 copy of a 16-bit one. Valid until the mapping ends.
  DenseTensor* Input(const DenseTensor* tensor);
  // A tensor the CPU kernel may write in place of `tensor`; map inputs first.
  DenseTensor* Output(DenseTensor* tensor);
  // The same for sparse gradients: the rows' numbers are copied, their values mapped.
  phi::SelectedRows* InputRows(const phi::SelectedRows* rows);
  phi::SelectedRows* OutputRows(phi::SelectedRows* rows);
  // Either, told by the tensor's class.
  const TensorBase* InputAny(const TensorBase* tensor);
  // Gives what the kernel wrote back to the device tensors, rounded to their dtype.
  void Finish();

 private:
  struct MappedInput {
    const DenseTensor* device;
    DenseTensor* host;
    bool widened;
  };
  struct MappedRows {
    phi::SelectedRows* device;
    phi::SelectedRows* host;
  };
  struct MappedOutput {
    DenseTensor* device;
    DenseTensor* host;
    DataType wanted;
    bool aliased;  // the kernel was lent the tensor's own memory
  };

  std::shared_ptr<phi::Allocation> AliasOf(const std::shared_ptr<phi::Allocation>& real);
  void WidenInto(const DenseTensor& from, DenseTensor* to);
  void Return(const MappedOutput& output);
  // The same for memory without a shape: all of it, shared where a GPU's kernel would share.
  void WidenCache(const DenseTensor& from, DenseTensor* to);
  void ReturnCache(const MappedOutput& output);
  DenseTensor* OutputInto(DenseTensor* tensor, DenseTensor* host);

  const KernelSlot& slot_;
  const phi::DeviceContext* device_;
  // A deque: tensors already handed out must not move.
  std::deque<DenseTensor> hosts_;
  std::deque<phi::SelectedRows> host_rows_;
  std::vector<MappedRows> output_rows_;
  std::vector<MappedInput> inputs_;
  std::vector<MappedOutput> outputs_;
  std::vector<std::shared_ptr<phi::Allocation>> aliases_;
};

}  // namespace vgpu
