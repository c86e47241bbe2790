#include "tensor_mapping.h"

#include <cstring>

#include "convert.h"
#include "counters.h"
#include "device_memory.h"
#include "device_model.h"
#include "planning.h"
#include "views.h"

namespace vgpu {
namespace {

// Device memory under a CPU place: CPU kernels insist on the place, the bytes are the same.
struct Alias : phi::Allocation {
  explicit Alias(std::shared_ptr<phi::Allocation> r)
      : phi::Allocation(r->ptr(), r->size(), phi::CPUPlace()), real(std::move(r)) {}
  std::shared_ptr<phi::Allocation> real;
};

bool OnDevice(const DenseTensor& tensor) {
  return tensor.place().GetType() == phi::AllocationType::CUSTOM;
}

// A constructor call: set_meta() would refuse a dtype that is still undefined.
void Rebuild(DenseTensor* tensor, const phi::DenseTensorMeta& meta,
             const std::shared_ptr<phi::Allocation>& holder) {
  *tensor = DenseTensor(holder, meta);
}

// Memory without a shape is what a kernel keeps for its gradient (einsum of Paddle 2).
bool HasNoShape(const DenseTensor& tensor) { return tensor.dims().size() < 0; }

// True if InferMeta said what the output will be, and the kernel will fill it.
bool CanAllocate(const KernelSlot& slot, const DenseTensor& output) {
  // Views take their input's memory.
  if (slot.wants_empty_output || slot.work == WorkKind::kView) return false;
  if (output.dtype() == DataType::UNDEFINED || HasNoShape(output)) return false;
  const auto& dims = output.dims();
  for (int i = 0; i < dims.size(); ++i)
    if (dims[i] <= 0) return false;
  return true;
}

void* AllocateHost(DenseTensor* tensor, DataType type) {
  return static_cast<phi::DeviceContext*>(CpuContext())->Alloc(tensor, type);
}

#ifdef AUTOAMP_HAS_STRIDES
// Copies a strided 16-bit tensor into a dense buffer, in row-major order of its indices.
void Gather(const DenseTensor& tensor, uint16_t* to) {
  const auto* from = static_cast<const uint16_t*>(tensor.data());
  const auto& dims = tensor.dims();
  const auto& strides = tensor.strides();
  const int rank = dims.size();
  std::vector<int64_t> index(rank, 0);
  for (int64_t i = 0, n = tensor.numel(); i < n; ++i) {
    int64_t offset = 0;
    for (int k = 0; k < rank; ++k) offset += index[k] * strides[k];
    to[i] = from[offset];
    for (int k = rank - 1; k >= 0; --k) {
      if (++index[k] < dims[k]) break;
      index[k] = 0;
    }
  }
}
#endif

}  // namespace

phi::CPUContext* CpuContext() {
  static auto* context = static_cast<phi::CPUContext*>(
      phi::DeviceContextPool::Instance().Get(phi::CPUPlace()));
  return context;
}

std::shared_ptr<phi::Allocation> TensorMapping::AliasOf(
    const std::shared_ptr<phi::Allocation>& real) {
  for (auto& alias : aliases_)
    if (static_cast<Alias*>(alias.get())->real == real) return alias;
  aliases_.push_back(std::make_shared<Alias>(real));
  return aliases_.back();
}

void TensorMapping::WidenInto(const DenseTensor& from, DenseTensor* to) {
  RequireHostCopy(from.numel() * sizeof(float));
  Rebuild(to, phi::DenseTensorMeta(DataType::FLOAT32, from.dims(), from.layout()), nullptr);
  auto* values = static_cast<float*>(AllocateHost(to, DataType::FLOAT32));
  if (!from.numel()) return;
#ifdef AUTOAMP_HAS_STRIDES
  if (!IsContiguous(from)) {
    std::vector<uint16_t> dense(from.numel());
    Gather(from, dense.data());
    Widen(from.dtype(), dense.data(), values, from.numel());
    return;
  }
#endif
  Widen(from.dtype(), from.data(), values, from.numel());
}

void TensorMapping::WidenCache(const DenseTensor& from, DenseTensor* to) {
  const auto& meta = from.meta();
  DenseTensor whole;
  bool shared = false;
  for (auto& input : inputs_)
    if (input.widened && input.device->Holder() == from.Holder() &&
        input.device->meta().offset == meta.offset) {
      whole = *input.host;
      shared = true;
      break;
    }
  if (!shared) {
    const int64_t count = (from.Holder()->size() - meta.offset) / phi::SizeOf(meta.dtype);
    phi::DenseTensorMeta all(meta.dtype, phi::make_ddim({count}));
    all.offset = meta.offset;
    WidenInto(DenseTensor(from.Holder(), all), &whole);
  }
  phi::DenseTensorMeta widened = meta;
  widened.dtype = DataType::FLOAT32;
  widened.offset = 0;
  Rebuild(to, widened, whole.Holder());
}

DenseTensor* TensorMapping::Input(const DenseTensor* tensor) {
  if (!tensor) return nullptr;
  for (auto& seen : inputs_)
    if (seen.device == tensor) return seen.host;
  // Tensors without elements count as uninitialised, and have a dtype all the same.
  const bool there = tensor->initialized() || (tensor->Holder() && tensor->numel() == 0);
  const bool widened = there && slot_.converts && IsHalf(tensor->dtype());
  if (widened) {
    hosts_.emplace_back();
    if (HasNoShape(*tensor))
      WidenCache(*tensor, &hosts_.back());
    else
      WidenInto(*tensor, &hosts_.back());
  } else {
    hosts_.emplace_back(*tensor);
    if (tensor->initialized() && OnDevice(*tensor))
      Rebuild(&hosts_.back(), tensor->meta(), AliasOf(tensor->Holder()));
  }
  inputs_.push_back({tensor, &hosts_.back(), widened});
  return &hosts_.back();
}

DenseTensor* TensorMapping::Output(DenseTensor* tensor) {
  if (!tensor) return nullptr;
  for (auto& seen : outputs_)
    if (seen.device == tensor) return seen.host;
  // Some kernels ask whether they work in place by comparing tensors (merged_momentum).
  if (tensor->initialized())
    for (auto& input : inputs_)
      if (input.device == tensor && (input.widened || OnDevice(*tensor))) {
        outputs_.push_back({tensor, input.host, tensor->dtype(), !input.widened});
        return input.host;
      }
  hosts_.emplace_back();
  return OutputInto(tensor, &hosts_.back());
}

DenseTensor* TensorMapping::OutputInto(DenseTensor* tensor, DenseTensor* host) {
  bool aliased = false;
  phi::DenseTensorMeta meta = tensor->meta();
  const DataType wanted = meta.dtype;
  const bool rounds = slot_.converts && IsHalf(wanted);
  // In place is told by memory, not by pointer: Paddle passes distinct tensor objects.
  const MappedInput* source = nullptr;
  if (tensor->Holder())
    for (auto& input : inputs_)
      if (input.device->Holder() == tensor->Holder() &&
          input.device->meta().offset == meta.offset) {
        source = &input;
        break;
      }
  if (source && source->widened) {
    meta.dtype = DataType::FLOAT32;
    meta.offset = source->host->meta().offset;
    Rebuild(host, meta, source->host->Holder());
  } else if (tensor->initialized() && !rounds) {
    aliased = true;
    Rebuild(host, meta, OnDevice(*tensor) ? AliasOf(tensor->Holder()) : tensor->Holder());
  } else if (!rounds && CanAllocate(slot_, *tensor)) {
    // Allocated where it belongs, so that nothing is copied and the device's room decides.
    device_->Alloc(tensor, wanted, 0);
    Rebuild(host, tensor->meta(), AliasOf(tensor->Holder()));
  } else {
    if (rounds) {
      meta.dtype = DataType::FLOAT32;
      if (CanAllocate(slot_, *tensor)) RequireHostCopy(tensor->numel() * sizeof(float));
    }
    meta.offset = 0;
    Rebuild(host, meta, nullptr);
  }
  outputs_.push_back({tensor, host, wanted, aliased});
  return host;
}

phi::SelectedRows* TensorMapping::InputRows(const phi::SelectedRows* rows) {
  if (!rows) return nullptr;
  host_rows_.emplace_back(rows->rows(), rows->height());
  *host_rows_.back().mutable_value() = *Input(&rows->value());
  return &host_rows_.back();
}

phi::SelectedRows* TensorMapping::OutputRows(phi::SelectedRows* rows) {
  if (!rows) return nullptr;
  host_rows_.emplace_back(rows->rows(), rows->height());
  OutputInto(rows->mutable_value(), host_rows_.back().mutable_value());
  output_rows_.push_back({rows, &host_rows_.back()});
  return &host_rows_.back();
}

const TensorBase* TensorMapping::InputAny(const TensorBase* tensor) {
  if (!tensor) return nullptr;
  if (DenseTensor::classof(tensor)) return Input(static_cast<const DenseTensor*>(tensor));
  if (phi::SelectedRows::classof(tensor))
    return InputRows(static_cast<const phi::SelectedRows*>(tensor));
  return tensor;
}

void TensorMapping::Return(const MappedOutput& output) {
  const DenseTensor& host = *output.host;
  DenseTensor* device = output.device;
  if (!host.Holder()) {
    // The kernel set a shape at most.
    if (host.dims() != device->dims() && host.dims().size() > 0) device->Resize(host.dims());
    return;
  }
  const DataType got = host.dtype();
  if (auto* alias = dynamic_cast<Alias*>(host.Holder().get())) {
    phi::DenseTensorMeta meta = host.meta();
    if (device->Holder() != alias->real) device->ResetHolder(alias->real);
    device->set_meta(meta);
    if (TracksRanges()) TrackRange(slot_, host, got);
    if (!Device().numerics) ScrubNonFinite(slot_, device);
    return;
  }
  if (HasNoShape(host)) return ReturnCache(output);
  const DataType wanted =
      slot_.converts && got == DataType::FLOAT32 && IsHalf(output.wanted) ? output.wanted : got;
  const int64_t count = host.numel();
  void* to;
  if (output.aliased) {
    // It was lent the tensor's memory and put its result elsewhere: the result is new memory,
    // and the old may belong to somebody else, too.
    if (device->dims() != host.dims()) device->Resize(host.dims());
    to = AllocateFresh(*device_, device, wanted);
  } else {
    phi::DenseTensorMeta meta = host.meta();
    meta.dtype = wanted;
    meta.offset = device->Holder() ? device->meta().offset : 0;
    device->set_meta(meta);
    to = device_->Alloc(device, wanted, 0);
  }
  if (!count) return;
  if (TracksRanges()) TrackRange(slot_, host, wanted);
  if (wanted != got)
    Round(wanted, static_cast<const float*>(host.data()), to, count);
  else
    std::memcpy(to, host.data(), count * phi::SizeOf(got));
  if (!Device().numerics) ScrubNonFinite(slot_, device);
}

void TensorMapping::ReturnCache(const MappedOutput& output) {
  const DenseTensor& host = *output.host;
  const bool rounds =
      slot_.converts && host.dtype() == DataType::FLOAT32 && IsHalf(slot_.key.dtype());
  phi::DenseTensorMeta meta = output.device->meta();
  meta.dtype = rounds ? slot_.key.dtype() : host.dtype();
  for (auto& input : inputs_)
    if (input.widened && input.host->Holder() == host.Holder()) {
      meta.offset = input.device->meta().offset;
      Rebuild(output.device, meta, input.device->Holder());
      return;
    }
  const int64_t count = host.Holder()->size() / phi::SizeOf(host.dtype());
  DenseTensor kept;
  Rebuild(&kept, phi::DenseTensorMeta(meta.dtype, phi::make_ddim({count})), nullptr);
  void* to = device_->Alloc(&kept, meta.dtype, 0);
  if (rounds)
    Round(meta.dtype, static_cast<const float*>(host.Holder()->ptr()), to, count);
  else
    std::memcpy(to, host.Holder()->ptr(), count * phi::SizeOf(meta.dtype));
  meta.offset = 0;
  Rebuild(output.device, meta, kept.Holder());
}

void TensorMapping::Finish() {
  for (auto& output : outputs_) Return(output);
  for (auto& rows : output_rows_) {
    rows.device->set_rows(rows.host->rows());
    rows.device->set_height(rows.host->height());
  }
}

}  // namespace vgpu
