#include "run_kernel.h"

#include <deque>

#include "counters.h"
#include "device_model.h"
#include "fast_cast.h"
#include "master_weights.h"
#include "operands.h"
#include "planning.h"
#include "tensor_mapping.h"

namespace vgpu {
namespace {

// A typed CPU kernel, called with every register and stack word it could want. Words beyond
// its own parameters are ignored by both calling conventions.
#if defined(__aarch64__)
#define VGPU_GENERAL uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define VGPU_GENERAL_VALUES(w) w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
#else
#define VGPU_GENERAL uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t
#define VGPU_GENERAL_VALUES(w) w[0], w[1], w[2], w[3], w[4], w[5]
#endif
#define VGPU_8(x) x, x, x, x, x, x, x, x
#define VGPU_8_VALUES(w, i) \
  w[i], w[i + 1], w[i + 2], w[i + 3], w[i + 4], w[i + 5], w[i + 6], w[i + 7]
using TypedKernel = void (*)(VGPU_GENERAL, VGPU_8(double), VGPU_8(uint64_t), VGPU_8(uint64_t),
                             VGPU_8(uint64_t), VGPU_8(uint64_t));

// What needs no kernel: planned calls and our own casts.
bool DoneWithoutKernel(const Operands& call) {
  if (!Device().numerics) {
    if (PlanInsteadOfRun(call)) {
      CountCall(call);
      return true;
    }
    ZeroUncomputedViews(call);
  }
  if (call.slot.lacks_instructions)
    Refuse("the kernel '" + call.slot.name +
           "' cannot be emulated here: Paddle's CPU code for it needs a processor with AVX-512. "
           "Planning mode (numerics=off) does without it for large tensors.");
  if (CastDirectly(call)) {
    CountCall(call);
    return true;
  }
  return false;
}

// The dense tensor that holds a tensor's values: itself, or the values of a sparse gradient.
const DenseTensor* ValuesOf(const TensorBase* tensor) {
  if (!tensor) return nullptr;
  if (DenseTensor::classof(tensor)) return static_cast<const DenseTensor*>(tensor);
  if (phi::SelectedRows::classof(tensor))
    return &static_cast<const phi::SelectedRows*>(tensor)->value();
  return nullptr;
}

// Paddle takes it on trust that a tensor is dense. GradScaler hands sparse gradients to a kernel
// for dense ones, which then reads whatever lies there, on a GPU as well.
template <typename Tensor>
Tensor* Dense(Tensor* tensor, const KernelSlot& slot) {
  if (tensor && !DenseTensor::classof(tensor))
    Refuse("the kernel '" + slot.name +
           "' was given a sparse gradient (SelectedRows) and takes dense tensors only; with AMP "
           "use sparse=False for embeddings.");
  return tensor;
}

// Gradients of some operators (qr, unstack) read the gradient of every result, whether it has
// one or not: with Paddle's own kernels a null reference, and the end of the process.
template <typename Tensor>
Tensor* Present(Tensor* tensor, const KernelSlot& slot) {
  if (!tensor)
    Refuse("the kernel '" + slot.name +
           "' needs a tensor that it was not given, most likely the gradient of a result that "
           "nothing uses (Paddle's own kernel reads it all the same and ends the process). Use "
           "all of the results of its operator, or none.");
  return Dense(tensor, slot);
}

bool TakesRows(InputKind kind) {
  return kind == InputKind::kRows || kind == InputKind::kRowsVector ||
         kind == InputKind::kAnyVector;
}

bool IsNeeded(InputKind kind) { return kind == InputKind::kDense || kind == InputKind::kVector; }

}  // namespace

void RunFromContext(KernelContext* context, uint32_t number) {
  const KernelSlot& slot = *Slots()[number];
  const auto& device = context->GetDeviceContext<phi::DeviceContext>();
  Operands call(slot, &device);
  call.context = context;
  const size_t input_count = context->InputsSize();
  const size_t output_count = context->OutputsSize();
  for (size_t i = 0; i < slot.inputs.size(); ++i) {
    const auto range = context->InputRangeAt(i);
    call.first_inputs.push_back(call.inputs.size());
    for (int at = range.first; at < range.second; ++at) {
      // TensorBase keeps absent inputs null in every Paddle version.
      const TensorBase* tensor = &context->InputAt<TensorBase>(at);
      if (IsNeeded(slot.inputs[i]))
        Present(tensor, slot);
      else if (!TakesRows(slot.inputs[i]))
        Dense(tensor, slot);
      call.inputs.push_back(ValuesOf(tensor));
    }
  }
  for (size_t i = 0; i < output_count; ++i)
    call.outputs.push_back(const_cast<DenseTensor*>(ValuesOf(context->MutableOutputAt(i))));
  if (DoneWithoutKernel(call)) return;

  TensorMapping mapping(slot, &device);
  KernelContext inner(CpuContext());
  std::vector<const TensorBase*> inputs(input_count);
  for (size_t i = 0; i < input_count; ++i)
    inputs[i] = mapping.InputAny(&context->InputAt<TensorBase>(i));
  const auto masters = FindMasters(call);
  for (auto* input : inputs) inner.EmplaceBackInputWithoutSetRange(input);
  for (size_t i = 0; i < slot.inputs.size(); ++i)
    inner.AssignInputRange(std::pair<int, int>(context->InputRangeAt(i)), i);
  for (size_t i = 0; i < context->AttrsSize(); ++i) inner.EmplaceBackAttr(context->AttrAt(i));

  std::vector<TensorBase*> outputs(output_count);
  for (size_t i = 0; i < output_count; ++i) {
    outputs[i] = context->MutableOutputAt(i);
    if (!outputs[i]) continue;
    if (phi::SelectedRows::classof(outputs[i]))
      outputs[i] = mapping.OutputRows(static_cast<phi::SelectedRows*>(outputs[i]));
    else if (call.outputs[i])
      outputs[i] = mapping.Output(call.outputs[i]);
  }
  StartMasters(masters, &mapping);
  for (auto* output : outputs) inner.EmplaceBackOutputWithoutSetRange(output);
  for (size_t i = 0; i < slot.outputs.size(); ++i)
    inner.AssignOutputRange(std::pair<int, int>(context->OutputRangeAt(i)), i);

  slot.cpu_kernel(&inner);
  FinishMasters(masters, &mapping);
  mapping.Finish();
  CountCall(call);
}

namespace {

using OptionalTensor = paddle::optional<DenseTensor>;
using TensorList = std::vector<const DenseTensor*>;
using OptionalList = paddle::optional<std::vector<const DenseTensor*>>;
using OutputList = std::vector<DenseTensor*>;
using RowsList = std::vector<const phi::SelectedRows*>;
using AnyList = std::vector<const TensorBase*>;

template <typename T>
T* At(uint64_t word) {
  return reinterpret_cast<T*>(word);
}
template <typename T>
uint64_t Word(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// Lists the tensors behind the argument words; the order is context, inputs, attributes that
// are not floats, outputs.
void CollectOperands(const uint64_t* words, Operands* call) {
  const KernelSlot& slot = call->slot;
  size_t at = 1;
  for (InputKind kind : slot.inputs) {
    const uint64_t word = words[at++];
    call->first_inputs.push_back(call->inputs.size());
    switch (kind) {
      case InputKind::kDense:
        call->inputs.push_back(Present(At<const DenseTensor>(word), slot));
        break;
      case InputKind::kOptional:
        call->inputs.push_back(At<const OptionalTensor>(word)->get_ptr());
        break;
      case InputKind::kVector:
        for (auto* tensor : *At<const TensorList>(word))
          call->inputs.push_back(Present(tensor, slot));
        break;
      case InputKind::kOptionalVector:
        if (auto* list = At<const OptionalList>(word)->get_ptr())
          for (auto* tensor : *list) call->inputs.push_back(Dense(tensor, slot));
        break;
      case InputKind::kRows:
        call->inputs.push_back(&At<const phi::SelectedRows>(word)->value());
        break;
      case InputKind::kRowsVector:
        for (auto* rows : *At<const RowsList>(word)) call->inputs.push_back(&rows->value());
        break;
      case InputKind::kAnyVector:
        for (auto* tensor : *At<const AnyList>(word)) call->inputs.push_back(ValuesOf(tensor));
        break;
    }
  }
  call->attribute_words = words + at;
  at += slot.attributes.size() - slot.float_attributes;
  for (OutputKind kind : slot.outputs) {
    const uint64_t word = words[at++];
    if (kind == OutputKind::kDense)
      call->outputs.push_back(Dense(At<DenseTensor>(word), slot));
    else if (kind == OutputKind::kRows)
      call->outputs.push_back(word ? At<phi::SelectedRows>(word)->mutable_value() : nullptr);
    else
      for (auto* tensor : *At<OutputList>(word)) call->outputs.push_back(Dense(tensor, slot));
  }
}

// Replaces the argument words by ones that point at host tensors, and keeps the containers
// that the new words point to.
class HostArguments {
 public:
  HostArguments(const KernelSlot& slot, TensorMapping* mapping) : slot_(slot), mapping_(mapping) {}

  void Replace(uint64_t* words) {
    words[0] = Word(static_cast<phi::DeviceContext*>(CpuContext()));
    size_t at = 1;
    for (size_t i = 0; i < slot_.inputs.size(); ++i, ++at) {
      switch (slot_.inputs[i]) {
        case InputKind::kDense:
          words[at] = Word(mapping_->Input(At<const DenseTensor>(words[at])));
          break;
        case InputKind::kOptional: {
          auto* tensor = At<const OptionalTensor>(words[at])->get_ptr();
          if (!tensor) break;
          DenseTensor* host = mapping_->Input(tensor);
          optionals_.emplace_back(paddle::make_optional<DenseTensor>(*host));
          words[at] = Word(&optionals_.back());
          break;
        }
        case InputKind::kVector: {
          auto* list = At<const TensorList>(words[at]);
          lists_.emplace_back();
          for (auto* tensor : *list) lists_.back().push_back(mapping_->Input(tensor));
          words[at] = Word(&lists_.back());
          break;
        }
        case InputKind::kOptionalVector: {
          auto* list = At<const OptionalList>(words[at])->get_ptr();
          if (!list) break;
          TensorList hosts;
          for (auto* tensor : *list) hosts.push_back(mapping_->Input(tensor));
          optional_lists_.emplace_back(std::move(hosts));
          words[at] = Word(&optional_lists_.back());
          break;
        }
        case InputKind::kRows:
          words[at] = Word(mapping_->InputRows(At<const phi::SelectedRows>(words[at])));
          break;
        case InputKind::kRowsVector: {
          auto* list = At<const RowsList>(words[at]);
          rows_lists_.emplace_back();
          for (auto* rows : *list) rows_lists_.back().push_back(mapping_->InputRows(rows));
          words[at] = Word(&rows_lists_.back());
          break;
        }
        case InputKind::kAnyVector: {
          auto* list = At<const AnyList>(words[at]);
          any_lists_.emplace_back();
          for (auto* tensor : *list) any_lists_.back().push_back(mapping_->InputAny(tensor));
          words[at] = Word(&any_lists_.back());
          break;
        }
      }
    }
    at += slot_.attributes.size() - slot_.float_attributes;
    for (OutputKind kind : slot_.outputs) {
      if (kind == OutputKind::kDense) {
        words[at] = Word(mapping_->Output(At<DenseTensor>(words[at])));
      } else if (kind == OutputKind::kRows) {
        words[at] = Word(mapping_->OutputRows(At<phi::SelectedRows>(words[at])));
      } else {
        outputs_.emplace_back();
        for (auto* tensor : *At<OutputList>(words[at]))
          outputs_.back().push_back(mapping_->Output(tensor));
        words[at] = Word(&outputs_.back());
      }
      ++at;
    }
  }

 private:
  const KernelSlot& slot_;
  TensorMapping* mapping_;
  // Deques: words point into them.
  std::deque<OptionalTensor> optionals_;
  std::deque<TensorList> lists_;
  std::deque<OptionalList> optional_lists_;
  std::deque<OutputList> outputs_;
  std::deque<RowsList> rows_lists_;
  std::deque<AnyList> any_lists_;
};

}  // namespace

void RunVariadic(uint32_t number, SavedRegisters* registers) {
  const KernelSlot& slot = *Slots()[number];
  const size_t count = 1 + slot.inputs.size() + slot.attributes.size() -
                       slot.float_attributes + slot.outputs.size();
  uint64_t words[kGeneralRegisters + kStackWords] = {0};
  for (size_t i = 0; i < count; ++i)
    words[i] = i < kGeneralRegisters ? registers->general[i]
                                     : registers->stack[i - kGeneralRegisters];
  const auto* device = At<const phi::DeviceContext>(words[0]);
  Operands call(slot, device);
  CollectOperands(words, &call);
  if (DoneWithoutKernel(call)) return;

  TensorMapping mapping(slot, device);
  HostArguments arguments(slot, &mapping);
  const auto masters = FindMasters(call);
  arguments.Replace(words);
  StartMasters(masters, &mapping);
  const uint64_t* stack = words + kGeneralRegisters;
  const double* floats = registers->floats;
  reinterpret_cast<TypedKernel>(slot.variadic)(
      VGPU_GENERAL_VALUES(words), VGPU_8_VALUES(floats, 0), VGPU_8_VALUES(stack, 0),
      VGPU_8_VALUES(stack, 8), VGPU_8_VALUES(stack, 16), VGPU_8_VALUES(stack, 24));
  FinishMasters(masters, &mapping);
  mapping.Finish();
  CountCall(call);
}

}  // namespace vgpu
