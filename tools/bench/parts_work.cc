// Allocates the tensors of convolutions, norms and layers, and counts their bytes.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/parts_work.hpp"

#include <algorithm>
#include <cmath>

#include "tools/bench/cell.hpp"

namespace sluice::tools {
namespace {

constexpr int64_t kWidth = 4;
/// Memory between two uses of the same bytes: several times the L2 of any GPU.
constexpr double kRotation = 256e6;
constexpr int64_t kMostCopies = 32;
bool listed(const std::vector<std::string>& list, const char* name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

int64_t tokens(const PartsCell& c) { return c.T * c.N; }

void add_cells(const std::vector<std::string>& ops, const PartsCell& heads,
               std::vector<PartsCell>* out) {
  const auto add = [&](const char* op, const char* shape, int64_t T, int64_t N) {
    if (!listed(ops, op)) return;
    PartsCell cell = heads;
    cell.op = op, cell.shape = shape, cell.T = T, cell.N = N;
    out->push_back(cell);
    if (cell.op != "layer") return;
    cell.op = "delta";
    out->push_back(cell);
  };
  for (const int64_t T : {512, 2048, 8192, 32768}) {
    add("conv", "channel-last", T, 1);
    add("conv", "channel-first", T, 1);
  }
  add("conv", "channel-last", 512, 16);
  for (const int64_t N : {1, 16, 64, 256, 512}) {
    add("update", "columns inside", 1, N);
    add("update", "columns outside", 1, N);
    add("update", "ring, columns outside", 1, N);
  }
  for (const int64_t T : {1, 64, 512, 2048, 8192, 32768}) add("norm", "", T, 1);
  for (const int64_t T : {512, 2048, 8192, 32768}) {
    add("conv-backward", "channel-last", T, 1);
    add("norm-backward", "", T, 1);
  }
  for (const int64_t T : {512, 2048, 8192, 32768}) add("layer", "flat", T, 1);
  for (const int64_t T : {512, 2048, 8192, 32768}) add("layer-backward", "flat", T, 1);
  add("layer-backward", "interleaved", 8192, 1);
  add("layer", "interleaved", 8192, 1);
  add("layer", "flat", 2048, 16);
}

}  // namespace

std::vector<PartsCell> parts_cells(const std::vector<std::string>& ops,
                                   const std::vector<std::string>& heads) {
  std::vector<PartsCell> cells;
  for (const Cell& pair : all_heads(heads)) {
    PartsCell cell;
    cell.H = pair.H, cell.HV = pair.HV;
    add_cells(ops, cell, &cells);
  }
  return cells;
}

double parts_bytes(const PartsCell& c, int64_t element_bytes) noexcept {
  const auto each = static_cast<double>(element_bytes), T = static_cast<double>(tokens(c));
  const auto D = static_cast<double>(c.D()), N = static_cast<double>(c.N);
  const auto values = static_cast<double>(c.HV * c.V);
  // Old columns are read; a shift writes W - 1, a ring one.
  const bool ring = c.shape.rfind("ring", 0) == 0;
  const double state = N * D * each * (kWidth - 1), written = ring ? state / 3 : state;
  if (c.op == "norm") return 3 * T * values * each;
  if (c.op == "norm-backward") return 5 * T * values * each;
  if (c.op == "conv-backward") return 3 * T * D * each + 4 * D * (kWidth + 1);
  if (c.op == "layer-backward") {
    return T * (2 * D + 3 * values + 4 * static_cast<double>(c.HV)) * each;
  }
  if (c.op == "conv" || c.op == "update") return 2 * T * D * each + state + written;
  const auto states = 2 * N * static_cast<double>(c.HV * c.K * c.V) * 4;
  const double delta = T * (D + values + 2 * static_cast<double>(c.HV)) * each + states;
  return c.op == "delta" ? delta : delta + bytes_around(c, element_bytes);
}

double bytes_around(const PartsCell& c, int64_t element_bytes) noexcept {
  const auto each = static_cast<double>(element_bytes);
  const auto T = static_cast<double>(tokens(c)), D = static_cast<double>(c.D());
  const double states = 2 * static_cast<double>(c.N) * D * (kWidth - 1) * each;
  return 2 * T * D * each + 3 * T * static_cast<double>(c.HV * c.V) * each + states;
}

PartsWork::PartsWork(Machine& machine, const PartsCell& cell, DType dtype, Implementation backend)
    : memory_(machine), cell_(cell), dtype_(dtype), backend_(backend) {
  const double bytes = parts_bytes(cell, dtype.bits / 8);
  const auto copies =
      std::clamp(static_cast<int64_t>(std::ceil(kRotation / bytes)), int64_t{1}, kMostCopies);
  for (int64_t i = 0; i < copies; ++i) {
    if (cell.op == "conv") add_conv();
    if (cell.op == "update") add_update();
    if (cell.op == "norm") add_norm();
    if (cell.op == "conv-backward") add_conv_backward();
    if (cell.op == "norm-backward") add_norm_backward();
    if (cell.op == "layer") add_layer();
    if (cell.op == "layer-backward") add_layer_backward();
    if (cell.op == "delta") add_delta();
  }
}

void PartsWork::call_all() {
  for (const std::function<void()>& call : calls_) call();
}

void PartsWork::call() {
  calls_[next_]();
  next_ = (next_ + 1) % calls_.size();
}

/// cu_seqlens of N equal sequences; absent for one.
TensorView PartsWork::offsets() {
  if (cell_.N == 1) return {};
  return memory_.list(even_offsets(cell_.N, cell_.T));
}

/// A quarter of the heads without decay, the others with a slow one: as `bench prefill` has it.
TensorView PartsWork::decay_rates() {
  std::vector<float> rates(static_cast<size_t>(cell_.HV));
  for (size_t h = 0; h < rates.size(); ++h) rates[h] = h % 4 == 0 ? -20.0f : -3.0f;
  return memory_.list(rates);
}

template <class Args>
void PartsWork::add(const Args& args, Status (*run)(const Args&, Workspace, Stream) noexcept,
                    const Result<WorkspaceSize>& size) {
  auto scratch = std::make_shared<WorkScratch>();
  scratch->reserve(memory_.machine(), size);
  calls_.emplace_back([args, run, scratch] { require(run(args, scratch->get(), nullptr)); });
}

void PartsWork::add_conv() {
  const int64_t D = cell_.D(), T = tokens(cell_), N = cell_.N;
  CausalConv1dArgs args;
  if (cell_.shape == "channel-first") {
    args.x = memory_.tensor(dtype_, {1, D, T}).transposed(1, 2);
    args.out = memory_.tensor(dtype_, {1, D, T}).transposed(1, 2);
  } else {
    args.x = memory_.tensor(dtype_, {1, T, D});
    args.out = memory_.tensor(dtype_, {1, T, D});
  }
  args.weight = memory_.tensor(dtype_, {D, kWidth});
  args.cu_seqlens = offsets();
  args.state.initial = args.state.final = memory_.tensor(dtype_, {N, D, kWidth - 1});
  args.activation = Activation::kSilu;
  args.implementation = backend_;
  add(args, causal_conv1d, workspace_size(args));
}

void PartsWork::add_update() {
  const int64_t D = cell_.D(), N = cell_.N;
  CausalConv1dArgs args;
  args.x = memory_.tensor(dtype_, {N, 1, D});
  args.out = memory_.tensor(dtype_, {N, 1, D});
  args.weight = memory_.tensor(dtype_, {D, kWidth});
  const bool ring = cell_.shape.rfind("ring", 0) == 0;
  const int64_t L = ring ? kWidth : kWidth - 1;
  args.state.initial = cell_.shape == "columns inside"
                           ? memory_.tensor(dtype_, {N, D, L})
                           : memory_.tensor(dtype_, {N, L, D}).transposed(1, 2);
  args.state.final = args.state.initial;
  if (ring) {
    args.state.form = ConvStateForm::kRing;
    args.state.ring_position = memory_.list(std::vector<int32_t>(static_cast<size_t>(N), 7));
  }
  args.activation = Activation::kSilu;
  args.implementation = backend_;
  add(args, causal_conv1d, workspace_size(args));
}

void PartsWork::add_norm() {
  GatedRmsNormArgs args;
  args.x = memory_.tensor(dtype_, {tokens(cell_), cell_.HV, cell_.V});
  args.z = memory_.tensor(dtype_, {tokens(cell_), cell_.HV, cell_.V});
  args.out = memory_.tensor(dtype_, {tokens(cell_), cell_.HV, cell_.V});
  args.weight = memory_.tensor(dtype_, {cell_.V});
  args.implementation = backend_;
  add(args, gated_rms_norm, workspace_size(args));
}

void PartsWork::add_conv_backward() {
  const int64_t D = cell_.D(), T = tokens(cell_);
  CausalConv1dBackwardArgs args;
  args.x = memory_.tensor(dtype_, {1, T, D});
  args.d_out = memory_.tensor(dtype_, {1, T, D});
  args.dx = memory_.tensor(dtype_, {1, T, D});
  args.weight = memory_.tensor(dtype_, {D, kWidth});
  args.dweight = memory_.tensor(kFloat32, {D, kWidth});
  args.activation = Activation::kSilu;
  args.implementation = backend_;
  add(args, causal_conv1d_backward, workspace_size(args));
}

void PartsWork::add_norm_backward() {
  GatedRmsNormBackwardArgs args;
  for (TensorView* rows : {&args.x, &args.z, &args.d_out, &args.dx, &args.dz}) {
    *rows = memory_.tensor(dtype_, {tokens(cell_), cell_.HV, cell_.V});
  }
  args.weight = memory_.tensor(dtype_, {cell_.V});
  args.dweight = memory_.tensor(kFloat32, {cell_.V});
  args.implementation = backend_;
  add(args, gated_rms_norm_backward, workspace_size(args));
}

PartsWork::Projections PartsWork::projections() {
  const int64_t HV = cell_.HV, values = HV * cell_.V, T = tokens(cell_);
  if (cell_.shape == "interleaved") {
    return {memory_.tensor(dtype_, {1, T, cell_.D() + values}),
            {},
            memory_.tensor(dtype_, {1, T, 2 * HV}),
            {}};
  }
  return {memory_.tensor(dtype_, {1, T, cell_.D()}), memory_.tensor(dtype_, {1, T, values}),
          memory_.tensor(dtype_, {1, T, HV}), memory_.tensor(dtype_, {1, T, HV})};
}

template <class Args>
void PartsWork::set_layer(Args* args) {
  if (cell_.shape == "interleaved") args->packing = Packing::kInterleaved;
  const Projections rows = projections();
  args->qkv = rows.qkv, args->z = rows.z, args->b = rows.b, args->a = rows.a;
  args->conv_weight = memory_.tensor(dtype_, {cell_.D(), kWidth});
  args->A_log = decay_rates();
  args->dt_bias = memory_.tensor(kFloat32, {cell_.HV});
  args->norm_weight = memory_.tensor(dtype_, {cell_.V});
  args->cu_seqlens = offsets();
  args->num_k_heads = cell_.H, args->num_v_heads = cell_.HV;
  args->head_k_dim = cell_.K, args->head_v_dim = cell_.V;
  args->implementation = backend_;
}

void PartsWork::add_layer_backward() {
  LayerBackwardArgs args;
  set_layer(&args);
  const Projections gradients = projections();
  args.dqkv = gradients.qkv, args.dz = gradients.z, args.db = gradients.b, args.da = gradients.a;
  args.dconv_weight = memory_.tensor(kFloat32, {cell_.D(), kWidth});
  args.dA_log = memory_.tensor(kFloat32, {cell_.HV});
  args.ddt_bias = memory_.tensor(kFloat32, {cell_.HV});
  args.dnorm_weight = memory_.tensor(kFloat32, {cell_.V});
  args.d_out = memory_.tensor(dtype_, {1, tokens(cell_), cell_.HV, cell_.V});
  add(args, layer_backward, workspace_size(args));
}

void PartsWork::add_layer() {
  LayerArgs args;
  set_layer(&args);
  args.out = memory_.tensor(dtype_, {1, tokens(cell_), cell_.HV, cell_.V});
  args.conv_initial = args.conv_final = memory_.tensor(dtype_, {cell_.N, cell_.D(), kWidth - 1});
  args.state.initial = args.state.final =
      memory_.tensor(kFloat32, {cell_.N, cell_.HV, cell_.K, cell_.V});
  add(args, layer_prefill, layer_prefill_workspace(args));
}

void PartsWork::add_delta() {
  const int64_t H = cell_.H, HV = cell_.HV, K = cell_.K, V = cell_.V, T = tokens(cell_);
  ChunkForwardArgs args;
  args.q = memory_.tensor(dtype_, {1, T, H, K});
  args.k = memory_.tensor(dtype_, {1, T, H, K});
  args.v = memory_.tensor(dtype_, {1, T, HV, V});
  args.o = memory_.tensor(dtype_, {1, T, HV, V});
  args.gate = memory_.tensor(dtype_, {1, T, HV});
  args.beta = memory_.tensor(dtype_, {1, T, HV});
  args.A_log = decay_rates();
  args.dt_bias = memory_.tensor(kFloat32, {HV});
  args.cu_seqlens = offsets();
  args.state.initial = args.state.final = memory_.tensor(kFloat32, {cell_.N, HV, K, V});
  args.gate_space = GateSpace::kRaw, args.beta_space = BetaSpace::kLogit;
  args.qk_norm = QkNorm::kL2;
  args.implementation = backend_;
  add(args, chunk_forward, workspace_size(args));
}

}  // namespace sluice::tools
