// Optimizers that keep float32 master copies of 16-bit parameters. Paddle's CPU kernels ignore
// them or half know them. So the float32 copy that such a kernel gets of the parameter holds the
// master's values instead, and the master is set from what the kernel made of it.
#pragma once

#include <vector>

#include "operands.h"
#include "tensor_mapping.h"

namespace vgpu {

struct MasterWeight {
  const DenseTensor* parameter;
  const DenseTensor* master;
  DenseTensor* updated_parameter;
  DenseTensor* updated_master;
};
using MasterWeights = std::vector<MasterWeight>;

// One entry for each parameter of the call that has a master copy. Refuses a call of a kernel
// that has master copies and is not known to kernel_traits.
MasterWeights FindMasters(const Operands& call);

// Around the kernel, when inputs and outputs are mapped.
void StartMasters(const MasterWeights& masters, TensorMapping* mapping);
void FinishMasters(const MasterWeights& masters, TensorMapping* mapping);

}  // namespace vgpu
