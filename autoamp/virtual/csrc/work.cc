#include "work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "views.h"

namespace vgpu {
namespace {

double Elements(const DenseTensor* tensor) { return static_cast<double>(tensor->numel()); }

double Bytes(const DenseTensor* tensor) {
  if (!tensor || !tensor->initialized() || tensor->dtype() == DataType::UNDEFINED) return 0;
  return Elements(tensor) * static_cast<double>(phi::SizeOf(tensor->dtype()));
}

double Dim(const DenseTensor* tensor, int from_end) {
  const int rank = tensor->dims().size();
  return rank >= from_end ? static_cast<double>(tensor->dims()[rank - from_end]) : 1;
}

double RowMultiple(double a, double b) {
  double multiple = 64;
  while (multiple > 1 && (std::fmod(a, multiple) != 0 || std::fmod(b, multiple) != 0))
    multiple /= 2;
  return multiple;
}

bool IsGrad(WorkKind kind) {
  return kind == WorkKind::kMatmulGrad || kind == WorkKind::kConvGrad;
}

bool Wants(const Operands& call, size_t output) {
  return output < call.outputs.size() && call.outputs[output] != nullptr;
}

void Add(Work* work, const Product& product) {
  if (work->product_count < kMaxProducts) work->products[work->product_count++] = product;
  work->flops += 2 * product.m * product.n * product.k * product.batch * product.times;
}

// [.., m, k] times [.., k, n]; transposes do not matter, the sizes tell which is which. A
// weight without batch dimensions makes one large product of the whole batch.
Product ProductOf(const DenseTensor* x, const DenseTensor* y, const DenseTensor* out) {
  Product p;
  const int rank = out->dims().size();
  if (x->dims().size() <= 1) {
    p.k = Elements(x);
    p.n = Elements(out);
    p.m = 1;
    return p;
  }
  const double rows = Dim(x, 2), columns = Dim(x, 1);
  const bool vector = y->dims().size() <= 1;
  p.m = vector ? Dim(out, 1) : Dim(out, 2);
  p.n = vector ? 1 : Dim(out, 1);
  p.k = rows == p.m ? columns : rows;
  const double count = p.m * p.n > 0 ? Elements(out) / (p.m * p.n) : 0;
  if (y->dims().size() <= 2 && rank > 2)
    p.m *= count;
  else
    p.batch = std::max(1.0, count);
  return p;
}

// addmm and baddbmm: what is added comes before the product's operands.
bool AddsFirst(const Work& work) {
  return std::strstr(work.name, "addmm") || std::strstr(work.name, "baddbmm");
}

void MeasureMatmul(const Operands& call, Work* work) {
  if (call.inputs.size() < 2 || !call.inputs[0] || !call.inputs[1]) return;
  const DenseTensor* x = call.inputs[0];
  const DenseTensor* y = call.inputs[1];
  if (!IsGrad(work->kind)) {
    if (AddsFirst(*work) && call.inputs.size() > 2) x = call.inputs[1], y = call.inputs[2];
    if (!Wants(call, 0) || !y) return;
    const Product p = ProductOf(x, y, call.outputs[0]);
    work->row_multiple = RowMultiple(p.k, p.n);
    Add(work, p);
    return;
  }
  const size_t first = AddsFirst(*work) ? 1 : 0;
  if (call.inputs.size() < first + 3 || !call.inputs[first + 1] || !call.inputs[first + 2]) return;
  const Product p = ProductOf(call.inputs[first], call.inputs[first + 1], call.inputs[first + 2]);
  work->row_multiple = RowMultiple(p.k, p.n);
  if (Wants(call, first)) Add(work, {p.m, p.k, p.n, p.batch});
  if (Wants(call, first + 1)) Add(work, {p.k, p.n, p.m, p.batch});
}

// Labels of two operands and the result, as in "bij,bjk->bik": those of both and the result are
// the batch, those of both alone the inner dimension. What an ellipsis stands for is the batch.
void MeasureEinsum(const Operands& call, Work* work) {
  const bool grad = work->kind == WorkKind::kEinsumGrad;
  const int at = call.Find(phi::AttributeType::STRING);
  if (at < 0 || call.first_inputs.empty()) return;
  const size_t count = call.first_inputs.size() > 1 ? call.first_inputs[1] : call.inputs.size();
  if (count != 2 || !call.inputs[0] || !call.inputs[1]) return;
  const std::string& equation = call.String(at);
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) return;
  const std::string sides[2] = {equation.substr(0, comma),
                                equation.substr(comma + 1, arrow - comma - 1)};
  const std::string result = equation.substr(arrow + 2);
  std::map<char, double> sizes[2];
  double spread[2] = {1, 1};
  for (int side = 0; side < 2; ++side) {
    const auto& dims = call.inputs[side]->dims();
    int labels = 0, axis = 0;
    for (char c : sides[side]) labels += c >= 'A' && c != '.';
    for (size_t i = 0; i < sides[side].size(); ++i) {
      const char c = sides[side][i];
      if (c == '.') {
        for (int n = dims.size() - labels; n > 0 && axis < dims.size(); --n)
          spread[side] *= static_cast<double>(dims[axis++]);
        i += 2;
      } else if (c >= 'A' && axis < dims.size()) {
        sizes[side][c] = static_cast<double>(dims[axis++]);
      }
    }
  }
  Product p;
  p.m = p.n = p.k = 1;
  p.batch = std::max(spread[0], spread[1]);
  for (auto& [label, size] : sizes[0]) {
    const bool kept = result.find(label) != std::string::npos;
    const bool both = sizes[1].count(label) != 0;
    if (both) (kept ? p.batch : p.k) *= size;
    if (!both && kept) p.m *= size;
  }
  for (auto& [label, size] : sizes[1])
    if (!sizes[0].count(label) && result.find(label) != std::string::npos) p.n *= size;
  work->row_multiple = RowMultiple(p.k, p.n);
  // What Paddle keeps for backward is counted by memory; the operands are read once.
  work->bytes = 0;
  for (size_t i = 0; i < 2; ++i) work->bytes += Bytes(call.inputs[i]);
  if (!grad) {
    if (Wants(call, 0)) work->bytes += Bytes(call.outputs[0]);
    Add(work, p);
    return;
  }
  work->bytes += Bytes(call.inputs.back());
  for (auto* output : call.outputs) work->bytes += Bytes(output);
  if (Wants(call, 0)) Add(work, {p.m, p.k, p.n, p.batch});
  if (Wants(call, 1)) Add(work, {p.k, p.n, p.m, p.batch});
}

// x [b, i], y [b, j], weight [o, i, j]: x by each of the o matrices, then by y; three such
// products in backward.
void MeasureBilinear(const Operands& call, Work* work) {
  if (call.inputs.size() < 3 || !call.inputs[0] || !call.inputs[2]) return;
  const DenseTensor* x = call.inputs[0];
  const DenseTensor* weight = call.inputs[2];
  if (weight->dims().size() != 3) return;
  const double rows = Dim(x, 2), out = Dim(weight, 3), i = Dim(weight, 2), j = Dim(weight, 1);
  work->row_multiple = RowMultiple(i, j);
  const int times = work->kind == WorkKind::kBilinearGrad ? 3 : 1;
  for (int n = 0; n < times; ++n) Add(work, {rows, j, i, out});
}

// A chain of products; counted from left to right, where Paddle picks the cheapest order.
void MeasureMultiDot(const Operands& call, Work* work) {
  if (call.inputs.empty() || !call.inputs[0]) return;
  const DenseTensor* x = call.inputs[0];
  const double rows = x->dims().size() < 2 ? 1 : Dim(x, 2);
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    const DenseTensor* y = call.inputs[i];
    if (!y) return;
    const bool vector = y->dims().size() < 2;
    Add(work, {rows, vector ? 1 : Dim(y, 1), Dim(y, vector ? 1 : 2), 1});
  }
}

// Products of one recurrent layer in one direction are those of all layers of the same shape.
void AddSequential(Work* work, const Product& product) {
  for (int i = 0; i < work->product_count; ++i) {
    Product& known = work->products[i];
    if (known.m != product.m || known.n != product.n || known.k != product.k) continue;
    known.times += product.times;
    work->flops += 2 * product.m * product.n * product.k * product.times;
    return;
  }
  Add(work, product);
}

// LSTM, GRU and simple recurrent layers: x is [time, batch, in], the first state
// [layers * directions, batch, hidden]; weights come in pairs, [gates * hidden, in] for the input
// and [gates * hidden, hidden] for the state before. The input's products are made for all time
// steps at once, the state's one step after the other.
void MeasureRnn(const Operands& call, Work* work) {
  if (call.inputs.size() < 4 || !call.inputs[0] || !call.inputs[1]) return;
  const DenseTensor* x = call.inputs[0];
  const DenseTensor* state = call.inputs[1];
  if (x->dims().size() != 3 || state->dims().size() != 3) return;
  const double time = Dim(x, 3), batch = Dim(x, 2), hidden = Dim(state, 1);
  const int cells = static_cast<int>(state->dims()[0]);
  const bool grad = work->kind == WorkKind::kRnnGrad;
  work->row_multiple = RowMultiple(hidden, hidden);
  int seen = 0;
  for (size_t i = 2; i < call.inputs.size() && seen < 2 * cells; ++i) {
    const DenseTensor* weight = call.inputs[i];
    if (!weight || weight->dims().size() != 2) continue;
    const bool of_state = seen++ % 2 == 1;
    const double gates = static_cast<double>(weight->dims()[0]);
    const double in = static_cast<double>(weight->dims()[1]);
    if (!grad) {
      AddSequential(work, of_state ? Product{batch, gates, in, 1, time}
                                   : Product{time * batch, gates, in, 1, 1});
      continue;
    }
    // Backward in time for the state; the weights' gradients are one product over all steps.
    AddSequential(work, of_state ? Product{batch, in, gates, 1, time}
                                 : Product{time * batch, in, gates, 1, 1});
    AddSequential(work, {gates, in, time * batch, 1, 1});
  }
}

bool IsChannelsLast(const Operands& call) {
  // The data format is the one string attribute that starts with "N" (the other names the
  // padding); one more may stand before it.
  for (size_t i = 0; i < call.slot.attributes.size(); ++i) {
    if (call.slot.attributes[i] != phi::AttributeType::STRING) continue;
    const std::string& text = call.String(i);
    if (text == "NHWC" || text == "NDHWC" || text == "NLC") return true;
  }
  return false;
}

// A transposed convolution, whose forward is an ordinary one's backward: weights are
// [in channels, out channels / groups, kernel...].
void MeasureTransposedConv(const Operands& call, Work* work) {
  const DenseTensor* x = call.inputs[0];
  const DenseTensor* weight = call.inputs[1];
  const double in_channels = static_cast<double>(weight->dims()[0]);
  const double columns = Elements(weight) / std::max(1.0, in_channels);
  const double positions = Elements(x) / std::max(1.0, in_channels);
  work->row_multiple = RowMultiple(in_channels, static_cast<double>(weight->dims()[1]));
  const size_t wanted = IsGrad(work->kind) ? Wants(call, 0) + Wants(call, 1) : 1;
  for (size_t i = 0; i < wanted; ++i) Add(work, {positions, columns, in_channels, 1});
}

// A convolution as the matrix product that implicit-GEMM kernels compute.
void MeasureConv(const Operands& call, Work* work) {
  // Deformable convolutions have offsets before the weight, and a mask after it.
  const bool deforms = std::strstr(work->name, "deformable") != nullptr;
  const size_t at = deforms ? 2 : 1;
  if (call.inputs.size() <= at || !call.inputs[0] || !call.inputs[at]) return;
  const DenseTensor* x = call.inputs[0];
  const DenseTensor* weight = call.inputs[at];
  const bool grad = IsGrad(work->kind);
  const DenseTensor* out = Wants(call, 0) && !grad ? call.outputs[0] : nullptr;
  if (grad && call.inputs.size() > 2) out = deforms ? call.inputs.back() : call.inputs[2];
  if (!out || weight->dims().size() < 3) return;
  // Weights are [out channels, in channels / groups, kernel...] in every data format.
  const double out_channels = static_cast<double>(weight->dims()[0]);
  const double in_per_group = static_cast<double>(weight->dims()[1]);
  const double window = Elements(weight) / std::max(1.0, out_channels * in_per_group);
  const bool last = IsChannelsLast(call);
  const double in_channels =
      static_cast<double>(last ? x->dims()[x->dims().size() - 1] : x->dims()[1]);
  const double groups = std::max(1.0, in_channels / std::max(1.0, in_per_group));
  const double out_per_group = out_channels / groups;
  const double positions = Elements(out) / std::max(1.0, out_channels);
  // First layers padded to 4 channels in NHWC have Tensor Core kernels of their own.
  const bool padded_input = last && in_channels == 4 && groups == 1;
  work->row_multiple = RowMultiple(padded_input ? 8 : in_per_group, out_per_group);
  work->dense_window = window > 1 && Elements(x) / in_channels == positions;
  work->winograd = window == 9 && groups == 1 && work->dense_window;
  if (!grad) {
    Add(work, {positions, out_per_group, in_per_group * window, groups});
  } else {
    // With strides only every s-th tap meets a value, so operations stay those of forward.
    const double in_positions = Elements(x) / std::max(1.0, in_channels);
    const double depth = out_per_group * window * positions / std::max(1.0, in_positions);
    if (Wants(call, 0)) Add(work, {in_positions, in_per_group, depth, groups});
    if (Wants(call, at)) Add(work, {out_per_group, in_per_group * window, positions, groups});
  }
  // Groups a few columns wide have kernels of their own, as in cost_model.cc.
  if (std::min(out_per_group, in_per_group * window) >= 8)
    work->operand_bytes = Bytes(x) + Bytes(out);
  if (!last) {
    work->transposed_bytes = Bytes(x) + Bytes(out);
    if (grad && Wants(call, 0)) work->transposed_bytes += Bytes(x);
  }
}

// Passes over the data beyond the first that the usual GPU kernels need: statistics before
// normalising; in backward the sums over x and dy before dx.
double ExtraPasses(const Operands& call, const char* name) {
  static const std::map<std::string, int> inputs_read_again = {
      {"batch_norm", 1},      {"sync_batch_norm", 1},
      {"instance_norm", 1},   {"group_norm", 1},
      {"batch_norm_grad", 2}, {"sync_batch_norm_grad", 2},
      {"instance_norm_grad", 2}, {"group_norm_grad", 2},
      {"layer_norm_grad", 2}};
  const auto found = inputs_read_again.find(name);
  if (found == inputs_read_again.end() || call.inputs.empty()) return 0;
  // Both x and dy have the size of the first input.
  return found->second * Bytes(call.inputs[0]);
}

// Bytes of a table that an index kernel leaves alone: forward reads the rows that it gives out,
// gradients want the table's shape only. What a gradient writes is whole, and counted as such.
double UntouchedBytes(const Operands& call, const std::string& name) {
  static const std::map<std::string, size_t> tables = {
      {"embedding", 1},          {"embedding_grad", 1},       {"embedding_sparse_grad", 1},
      {"gather", 0},             {"gather_grad", 0},          {"gather_nd", 0},
      {"gather_nd_grad", 0},     {"index_select", 0},         {"index_select_grad", 0},
      {"take_along_axis", 0},    {"take_along_axis_grad", 0}};
  const auto found = tables.find(name);
  if (found == tables.end() || call.inputs.size() <= found->second) return 0;
  const double table = Bytes(call.inputs[found->second]);
  if (name.find("_grad") != std::string::npos) return table;
  const double rows = Wants(call, 0) ? Bytes(call.outputs[0]) : 0;
  return std::max(0.0, table - rows);
}

Unit UnitOf(DataType type) {
  if (type == DataType::FLOAT16) return Unit::kFloat16;
  if (type == DataType::BFLOAT16) return Unit::kBfloat16;
  return type == DataType::FLOAT32 ? Unit::kTf32 : Unit::kPlain;
}

}  // namespace

Work MeasureWork(const Operands& call) {
  Work work;
  work.name = call.slot.name.c_str();
  work.kind = call.slot.work;
  work.from_program = call.context != nullptr;
  if (IsView(call)) return work;
  if (work.kind == WorkKind::kView) work.kind = WorkKind::kMemory;
  const DataType type = call.slot.key.dtype();
  work.unit = UnitOf(type);
  work.element_bytes = type == DataType::UNDEFINED ? 4 : static_cast<double>(phi::SizeOf(type));
  for (auto* input : call.inputs) work.bytes += Bytes(input);
  for (auto* output : call.outputs) work.bytes += Bytes(output);
  work.bytes -= UntouchedBytes(call, call.slot.name);
  work.extra_bytes = ExtraPasses(call, work.name);
  switch (work.kind) {
    case WorkKind::kMatmul:
    case WorkKind::kMatmulGrad:
      MeasureMatmul(call, &work);
      break;
    case WorkKind::kRnn:
    case WorkKind::kRnnGrad:
      MeasureRnn(call, &work);
      break;
    case WorkKind::kEinsum:
    case WorkKind::kEinsumGrad:
      MeasureEinsum(call, &work);
      break;
    case WorkKind::kBilinear:
    case WorkKind::kBilinearGrad:
      MeasureBilinear(call, &work);
      break;
    case WorkKind::kMultiDot:
      MeasureMultiDot(call, &work);
      break;
    case WorkKind::kConv:
    case WorkKind::kConvGrad:
      if (std::strstr(work.name, "transpose"))
        MeasureTransposedConv(call, &work);
      else
        MeasureConv(call, &work);
      break;
    default:
      break;
  }
  return work;
}

}  // namespace vgpu
