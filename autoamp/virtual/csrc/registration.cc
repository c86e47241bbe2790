#include "registration.h"

#include <map>
#include <string>
#include <typeindex>
#include <vector>

#include "kernel_slot.h"
#include "kernel_traits.h"
#include "run_kernel.h"
#include "stubs.h"

namespace vgpu {
namespace {

// One kernel to be registered. The kernel is a copy: inserting rehashes the factory's maps.
struct Job {
  std::string name;
  phi::KernelKey key;
  phi::Kernel kernel;
  bool converts;
};

// The versions of one kernel for one data layout, by dtype.
using Versions = std::map<DataType, const phi::Kernel*>;

void AddJobs(const std::string& name, phi::DataLayout layout, const Versions& versions,
             phi::Backend backend, std::vector<Job>* jobs) {
  bool strided = false;
#ifdef AUTOAMP_HAS_STRIDES
  strided = layout == phi::DataLayout::STRIDED;
#endif
  const bool moves_only = MovesDataOnly(name);
  for (auto& [type, kernel] : versions) {
    if (IsHalf(type)) continue;
    // A float32 kernel may get 16-bit operands, too: under bfloat16 O2
    // cross_entropy_with_softmax_grad<float32> is handed a bfloat16 softmax.
    const bool converts = type == DataType::FLOAT32 && !strided && !moves_only;
    jobs->push_back({name, {backend, layout, type}, *kernel, converts});
  }
  const auto float32 = versions.find(DataType::FLOAT32);
  for (DataType half : {DataType::FLOAT16, DataType::BFLOAT16}) {
    const auto native = versions.find(half);
    const bool has_native = native != versions.end();
    const bool has_float32 = float32 != versions.end();
    const phi::KernelKey key(backend, layout, half);
    // The CPU's own 16-bit arithmetic rounds inside the kernel, a GPU's does not; so it is
    // used for moving data only, or where nothing else exists.
    if (has_native && (strided || moves_only || !has_float32))
      jobs->push_back({name, key, *native->second, false});
    else if (has_float32)
      jobs->push_back({name, key, *float32->second, true});
  }
}

std::vector<Job> CollectJobs(phi::Backend backend) {
  std::vector<Job> jobs;
  for (auto& [name, kernels] : phi::KernelFactory::Instance().kernels()) {
    if (IsLeftOut(name)) continue;
    std::map<phi::DataLayout, Versions> by_layout;
    for (auto& [key, kernel] : kernels)
      if (key.backend() == phi::Backend::CPU) by_layout[key.layout()][key.dtype()] = &kernel;
    for (auto& [layout, versions] : by_layout) AddJobs(name, layout, versions, backend, &jobs);
  }
  return jobs;
}

// Reads the kernel's signature; false if it has an argument that the decoder does not know.
bool ReadSignature(const phi::Kernel& kernel, KernelSlot* slot) {
  const auto dense = std::type_index(typeid(const DenseTensor&));
  const auto optional = std::type_index(typeid(const paddle::optional<DenseTensor>&));
  const auto list = std::type_index(typeid(const std::vector<const DenseTensor*>&));
  const auto optional_list =
      std::type_index(typeid(const paddle::optional<std::vector<const DenseTensor*>>&));
  const auto rows = std::type_index(typeid(const phi::SelectedRows&));
  const auto rows_list =
      std::type_index(typeid(const std::vector<const phi::SelectedRows*>&));
  const auto any_list = std::type_index(typeid(const std::vector<const TensorBase*>&));
  const auto output_rows = std::type_index(typeid(phi::SelectedRows*));
  const auto output = std::type_index(typeid(DenseTensor*));
  const auto output_list = std::type_index(typeid(std::vector<DenseTensor*>));
  for (auto& def : kernel.args_def().input_defs()) {
    if (def.type_index == dense)
      slot->inputs.push_back(InputKind::kDense);
    else if (def.type_index == optional)
      slot->inputs.push_back(InputKind::kOptional);
    else if (def.type_index == list)
      slot->inputs.push_back(InputKind::kVector);
    else if (def.type_index == optional_list)
      slot->inputs.push_back(InputKind::kOptionalVector);
    else if (def.type_index == rows)
      slot->inputs.push_back(InputKind::kRows);
    else if (def.type_index == rows_list)
      slot->inputs.push_back(InputKind::kRowsVector);
    else if (def.type_index == any_list)
      slot->inputs.push_back(InputKind::kAnyVector);
    else
      return false;
  }
  for (auto& def : kernel.args_def().attribute_defs()) {
    // A kernel that is told where to put its result would put it on the CPU.
    if (def.type_index == phi::AttributeType::PLACE) return false;
    slot->attributes.push_back(def.type_index);
    slot->float_attributes += IsFloatAttribute(def.type_index);
  }
  for (auto& def : kernel.args_def().output_defs()) {
    if (def.type_index == output)
      slot->outputs.push_back(OutputKind::kDense);
    else if (def.type_index == output_list)
      slot->outputs.push_back(OutputKind::kVector);
    else if (def.type_index == output_rows)
      slot->outputs.push_back(OutputKind::kRows);
    else
      return false;
  }
  const size_t words = 1 + slot->inputs.size() + slot->attributes.size() -
                       slot->float_attributes + slot->outputs.size();
  return slot->float_attributes <= kFloatRegisters &&
         words <= static_cast<size_t>(kGeneralRegisters + kStackWords);
}

bool FillSlot(const Job& job, KernelSlot* slot) {
  slot->name = job.name;
  slot->amp_name = phi::TransToFluidOpName(job.name);
  slot->key = job.key;
  slot->cpu_kernel = job.kernel;
  slot->converts = job.converts;
  slot->variadic = reinterpret_cast<void*>(job.kernel.GetVariadicKernelFn<void (*)()>());
#ifndef AUTOAMP_PADDLE_2
  if (job.kernel.GetKernelRegisteredType() != phi::KernelRegisteredType::FUNCTION) return false;
#endif
  if (!slot->variadic || !ReadSignature(job.kernel, slot)) return false;
  slot->is_cast = job.name == "cast" && slot->inputs.size() == 1 && slot->outputs.size() == 1;
  if (const int from_end = MasterFromEnd(job.name))
    slot->master_input = static_cast<int>(slot->inputs.size()) + from_end;
  slot->wants_empty_output = WantsEmptyOutput(job.name);
  slot->shape_depends_on_data = ShapeDependsOnData(job.name);
#if defined(__x86_64__)
  slot->lacks_instructions = NeedsAvx512(job.name) && !__builtin_cpu_supports("avx512f");
#endif
  slot->work = WorkOf(job.name, job.key.layout());
  return true;
}

// KernelFn is a std::function in Paddle 3.x and a plain pointer in 2.x.
template <typename Function>
Function ContextFunction(int slot) {
  if constexpr (std::is_pointer<Function>::value) {
    return reinterpret_cast<Function>(ContextStub(slot));
  } else {
    return [slot](KernelContext* context) { RunFromContext(context, slot); };
  }
}

template <typename Definition>
void MoveDefinition(const Job& job, Definition* definition) {
  if (definition->backend == phi::Backend::CPU) definition->SetBackend(job.key.backend());
  if (job.converts && definition->dtype == DataType::FLOAT32)
    definition->SetDataType(job.key.dtype());
}

}  // namespace

std::vector<KernelSlot*>& Slots() {
  static std::vector<KernelSlot*> slots;
  return slots;
}

void RegisterKernels() {
  const phi::Backend backend = phi::TransToPhiBackend(phi::CustomPlace(kDeviceType));
  auto& factory = phi::KernelFactory::Instance();
  for (const Job& job : CollectJobs(backend)) {
    auto* slot = new KernelSlot;  // lives as long as Paddle may call it: for ever
    if (Slots().size() >= kMaxSlots || !FillSlot(job, slot)) {
      delete slot;
      continue;
    }
    const int number = static_cast<int>(Slots().size());
    Slots().push_back(slot);
    phi::Kernel wrapper(ContextFunction<phi::KernelFn>(number), VariadicStub(number));
    *wrapper.mutable_args_def() = job.kernel.args_def();
    for (auto& def : wrapper.mutable_args_def()->input_defs()) MoveDefinition(job, &def);
    for (auto& def : wrapper.mutable_args_def()->output_defs()) MoveDefinition(job, &def);
    wrapper.get_kerneltype_forvar_fn_ = job.kernel.get_kerneltype_forvar_fn_;
    factory.kernels()[job.name][job.key] = wrapper;
  }
}

}  // namespace vgpu
