// A kernel call seen from outside: its tensors in order and its attributes, on either route.
#pragma once

#include <vector>

#include "kernel_slot.h"

namespace vgpu {

struct Operands {
  const KernelSlot& slot;
  const phi::DeviceContext* device;
  // In argument order; absent optional inputs and unwanted outputs are null.
  std::vector<const DenseTensor*> inputs;
  std::vector<DenseTensor*> outputs;
  // Where each argument of the kernel's signature begins among the inputs: a list is several.
  std::vector<size_t> first_inputs;
  // Where the attributes are: the executor's context, or the words of a typed call (one per
  // attribute that is not float or double).
  const KernelContext* context{nullptr};
  const uint64_t* attribute_words{nullptr};

  Operands(const KernelSlot& s, const phi::DeviceContext* d) : slot(s), device(d) {
    inputs.reserve(8);
    outputs.reserve(8);
    first_inputs.reserve(8);
  }

  // Attributes by position among all attributes; the caller knows the kernel's signature.
  bool Bool(size_t index) const;
  int Int(size_t index) const;
  const std::string& String(size_t index) const;
  // Position of the first attribute of a type, or -1.
  int Find(phi::AttributeType type) const;

 private:
  uint64_t Word(size_t index) const;
};

}  // namespace vgpu
