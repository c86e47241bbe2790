#include "kernel_traits.h"

#include <cstring>
#include <map>
#include <set>

namespace vgpu {
namespace {

bool Starts(const std::string& text, const char* prefix) {
  return text.compare(0, std::strlen(prefix), prefix) == 0;
}
bool Contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

bool IsLeftOut(const std::string& name) {
  if (name == "full_int_array") return false;
  // Strings and sparse tensors have other tensor classes; tensor arrays are lists of tensors;
  // memcpy kernels belong to Paddle's own device code.
  return Starts(name, "strings_") || Starts(name, "memcpy") || Contains(name, "coo") ||
         Contains(name, "csr") || Contains(name, "array");
}

bool MovesDataOnly(const std::string& name) {
  // These get their strides in bytes of the dtype that the caller has: no widened copy fits.
  if (Starts(name, "index_elementwise_")) return true;
  static const std::set<std::string> names = {
      "assign",        "assign_value",   "cast",       "concat",
      "contiguous",    "data",           "empty",      "empty_like",
      "expand",        "flatten",        "flip",       "full",
      "full_batch_size_like",            "full_int_array",
      "full_like",     "gather",         "reshape",    "reverse",
      "roll",          "set_value",      "set_value_with_tensor",
      "slice",         "split",          "split_with_num",
      "squeeze",       "stack",          "strided_copy",
      "strided_slice", "tile",           "transpose",  "unbind",
      "unsqueeze",     "unstack"};
  return names.count(name) != 0;
}

bool ShapeDependsOnData(const std::string& name) {
  static const std::set<std::string> names = {
      "bincount",          "class_center_sample",   "collect_fpn_proposals", "ctc_align",
      "distribute_fpn_proposals",                   "generate_proposals",
      "graph_khop_sampler", "graph_sample_neighbors", "histogram_bin_edges",
      "masked_select",     "matrix_nms",            "multiclass_nms3",
      "nms",               "nonzero",               "reindex_graph",
      "repeat_interleave_with_tensor_index",        "segment_pool",
      "sequence_mask",     "sequence_mask_scalar",  "unique",
      "unique_consecutive", "viterbi_decode",       "where_index",
      "yolo_box_post"};
  return names.count(name) != 0;
}

bool WantsEmptyOutput(const std::string& name) {
  // The first four take over memory of other tensors; the index kernels copy x only into an
  // output that has no memory yet (one that has is taken for an in-place call).
  return name == "coalesce_tensor" || name == "share_data" || name == "share_buffer" ||
         name == "depend" || Starts(name, "index_put") || Starts(name, "index_elementwise_put");
}

bool PlacesConstants(const std::string& name) {
  return Starts(name, "full") || Starts(name, "assign") || Starts(name, "fill") ||
         Starts(name, "set_value") || Starts(name, "masked_fill") || name == "data";
}

bool NeedsAvx512(const std::string& name) {
  // From paddle/phi/kernels/fusion/cpu/*_avx_kernel.cc.
  return name == "fused_bias_residual_layernorm" || name == "fused_rms_norm_quant" ||
         name == "rms_norm" || name == "self_dp_attention";
}

int MasterFromEnd(const std::string& name) {
  // From the kernels' signatures: adam's family ends with skip_update, rprop with its ranges.
  static const std::map<std::string, int> from_end = {
      {"adadelta", -1},        {"adagrad", -1},         {"adam", -2},        {"adamax", -1},
      {"adamw", -2},           {"asgd", -1},            {"fused_adam", -2},  {"lamb", -2},
      {"lars_momentum", -1},   {"merged_adam", -1},     {"merged_momentum", -1},
      {"momentum", -1},        {"nadam", -1},           {"radam", -1},       {"rmsprop", -1},
      {"rprop", -3},           {"sgd", -1},             {"sparse_momentum", -1}};
  // The kernels for sparse gradients have the same tail.
  const std::string base = name.substr(0, name.find("_dense_param_sparse_grad"));
  auto found = from_end.find(base);
  return found == from_end.end() ? 0 : found->second;
}

WorkKind WorkOf(const std::string& name, phi::DataLayout layout) {
#ifdef AUTOAMP_HAS_STRIDES
  if (layout == phi::DataLayout::STRIDED) return WorkKind::kView;
#endif
  static const std::map<std::string, WorkKind> kinds = {
      {"matmul", WorkKind::kMatmul},
      {"bmm", WorkKind::kMatmul},
      {"mm", WorkKind::kMatmul},
      {"matmul_grad", WorkKind::kMatmulGrad},
      {"bmm_grad", WorkKind::kMatmulGrad},
      {"conv2d", WorkKind::kConv},
      {"depthwise_conv2d", WorkKind::kConv},
      {"conv3d", WorkKind::kConv},
      {"conv2d_transpose", WorkKind::kConv},
      {"depthwise_conv2d_transpose", WorkKind::kConv},
      {"conv3d_transpose", WorkKind::kConv},
      {"conv2d_transpose_grad", WorkKind::kConvGrad},
      {"depthwise_conv2d_transpose_grad", WorkKind::kConvGrad},
      {"conv3d_transpose_grad", WorkKind::kConvGrad},
      {"addmm", WorkKind::kMatmul},
      {"addmm_grad", WorkKind::kMatmulGrad},
      {"baddbmm", WorkKind::kMatmul},
      {"baddbmm_grad", WorkKind::kMatmulGrad},
      {"mv", WorkKind::kMatmul},
      {"mv_grad", WorkKind::kMatmulGrad},
      {"einsum", WorkKind::kEinsum},
      {"einsum_infer", WorkKind::kEinsum},
      {"einsum_grad", WorkKind::kEinsumGrad},
      {"bilinear", WorkKind::kBilinear},
      {"bilinear_grad", WorkKind::kBilinearGrad},
      {"bilinear_tensor_product", WorkKind::kBilinear},
      {"bilinear_tensor_product_grad", WorkKind::kBilinearGrad},
      {"multi_dot", WorkKind::kMultiDot},
      {"deformable_conv", WorkKind::kConv},
      {"deformable_conv_grad", WorkKind::kConvGrad},
      {"rnn", WorkKind::kRnn},
      {"rnn_grad", WorkKind::kRnnGrad},
      {"conv2d_grad", WorkKind::kConvGrad},
      {"depthwise_conv2d_grad", WorkKind::kConvGrad},
      {"conv3d_grad", WorkKind::kConvGrad}};
  auto found = kinds.find(name);
  return found == kinds.end() ? WorkKind::kMemory : found->second;
}

}  // namespace vgpu
