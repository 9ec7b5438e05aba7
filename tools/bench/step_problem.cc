// Allocates a step's tensors and pools and points calls into them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/step_problem.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "check/array.hpp"

namespace sluice::tools {
namespace {

// Several times the L2 of any GPU.
constexpr int64_t kColdBytes = int64_t{1} << 30;
constexpr int64_t kFewestLaunches = 8, kMostLaunches = 256;
DType dtype_of(const std::string& name) {
  return name == "fp32" ? kFloat32 : (name == "bf16" ? kBFloat16 : kFloat16);
}

int64_t launches_of(const StepCell& c) {
  const int64_t bytes = c.B * c.state_bytes() * (c.per_token ? c.T : 1);
  return std::clamp((kColdBytes + bytes - 1) / bytes, kFewestLaunches, kMostLaunches);
}

}  // namespace

StepProblem::StepProblem(Machine& machine, const StepCell& cell)
    : memory_(machine), cell_(cell), launches_(launches_of(cell)) {
  slots_ = launches_ * cell.B * (cell.per_token ? cell.T : 1);
  make_slots();
  if (cell.layer) {
    make_layer();
  } else {
    make_step();
  }
}

/// Slots in random order, as an allocator's are after a while.
void StepProblem::make_slots() {
  std::vector<int32_t> slots(static_cast<size_t>(slots_));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(7));
  const int64_t columns = cell_.per_token ? cell_.T : 1, rows = launches_ * cell_.B;
  slot_table_ = memory_.tensor(kInt32, {rows, columns}, 0);
  upload_list(memory_.machine(), slot_table_.data, slots);
  if (!cell_.per_token) {
    slot_table_.rank = 1;
    return;
  }
  accepted_ = memory_.list(std::vector<int32_t>(static_cast<size_t>(cell_.B), 1));
}

TensorView StepProblem::states() {
  const StepCell& c = cell_;
  const int64_t rows = c.vk ? c.V : c.K, columns = c.vk ? c.K : c.V;
  return memory_.tensor(dtype_of(c.state), {slots_, c.HV, rows, columns}, 0.1);
}

void StepProblem::make_step() {
  const StepCell& c = cell_;
  const DType io = kBFloat16;
  const int64_t B = c.packed ? 1 : c.B, T = c.packed ? c.B * c.T : c.T;
  step_.q = memory_.tensor(io, {B, T, c.H, c.K});
  step_.k = memory_.tensor(io, {B, T, c.H, c.K});
  step_.v = memory_.tensor(io, {B, T, c.HV, c.V});
  step_.o = memory_.tensor(io, {B, T, c.HV, c.V}, 0.0);
  step_.gate =
      c.key_gates ? memory_.tensor(io, {B, T, c.HV, c.K}) : memory_.tensor(io, {B, T, c.HV});
  step_.beta = memory_.tensor(io, {B, T, c.HV});
  if (c.packed) {
    std::vector<int32_t> offsets;
    for (int64_t n = 0; n <= c.B; ++n) offsets.push_back(static_cast<int32_t>(n * c.T));
    step_.cu_seqlens = memory_.list(offsets);
    step_.max_tokens = c.T;
  }
  step_.A_log = memory_.tensor(kFloat32, {c.HV});
  step_.dt_bias =
      c.key_gates ? memory_.tensor(kFloat32, {c.HV, c.K}) : memory_.tensor(kFloat32, {c.HV});
  step_.state.initial = states();
  step_.state.layout = c.vk ? StateLayout::kVK : StateLayout::kKV;
  step_.gate_space = GateSpace::kRaw;
  step_.beta_space = BetaSpace::kLogit;
  step_.qk_norm = QkNorm::kL2;
  step_.implementation = Implementation::kCuda;
  if (c.per_token) {
    step_.state_writes = StateWrites::kPerToken;
    step_.num_accepted = accepted_;
  }
  if (c.ring > 0) make_ring(&step_.ring);
}

/// Cursors of sequences that are anywhere in their rings, the same ones in every replay.
void StepProblem::make_ring(ReplayRing* ring) {
  const StepCell& c = cell_;
  const int64_t rows = launches_ * c.B;
  ring->k = memory_.tensor(dtype_of(c.entry), {slots_, c.ring, c.H, c.K}, 0.1);
  ring->delta = memory_.tensor(dtype_of(c.entry), {slots_, c.ring, c.HV, c.V}, 0.1);
  ring->decay = memory_.tensor(kFloat32, {slots_, c.ring, c.HV}, 0);
  upload_list(memory_.machine(), ring->decay.data,
              std::vector<float>(static_cast<size_t>(slots_ * c.ring * c.HV), 0.95f));
  const std::vector<int64_t> samples = ring_samples(c, rows);
  std::vector<int32_t> positions, checkpoints;
  for (int64_t row = 0; row < rows; ++row) {
    positions.push_back(static_cast<int32_t>(1000 + row));
    checkpoints.push_back(positions.back() -
                          static_cast<int32_t>(samples[static_cast<size_t>(row)]));
  }
  position_ = memory_.list(positions);
  checkpoint_ = memory_.list(checkpoints);
  ring->next_checkpoint = memory_.tensor(kInt32, {c.B}, 0);
  take_cursors(0, ring);
}

void StepProblem::take_cursors(int64_t launch, ReplayRing* ring) const {
  if (cell_.ring == 0) return;
  ring->position = position_.sliced(0, launch * cell_.B, cell_.B);
  ring->checkpoint = checkpoint_.sliced(0, launch * cell_.B, cell_.B);
}

void StepProblem::make_layer() {
  const StepCell& c = cell_;
  const DType io = kBFloat16;
  const int64_t D = c.conv_channels();
  layer_.qkv = memory_.tensor(io, {c.B, c.T, D});
  layer_.z = memory_.tensor(io, {c.B, c.T, c.HV * c.V});
  layer_.b = memory_.tensor(io, {c.B, c.T, c.HV});
  layer_.a = c.key_gates ? memory_.tensor(io, {c.B, c.T, c.HV, c.K})
                         : memory_.tensor(io, {c.B, c.T, c.HV});
  layer_.conv_weight = memory_.tensor(io, {D, kConvWidth}, 0.5);
  layer_.A_log = memory_.tensor(kFloat32, {c.HV});
  layer_.dt_bias =
      c.key_gates ? memory_.tensor(kFloat32, {c.HV, c.K}) : memory_.tensor(kFloat32, {c.HV});
  if (c.key_gates) layer_.gate_activation = Activation::kSigmoid;
  layer_.norm_weight = memory_.tensor(io, {c.V});
  layer_.out = memory_.tensor(io, {c.B, c.T, c.HV, c.V}, 0.0);
  layer_.conv_initial = memory_.tensor(io, {slots_, D, c.conv_columns()});
  layer_.state.initial = states();
  layer_.state.layout = c.vk ? StateLayout::kVK : StateLayout::kKV;
  layer_.num_k_heads = c.H, layer_.num_v_heads = c.HV;
  layer_.head_k_dim = c.K, layer_.head_v_dim = c.V;
  layer_.implementation = Implementation::kCuda;
  layer_.state.read_slots = slot_table_.sliced(0, 0, c.B);
  if (c.ring > 0) make_ring(&layer_.ring);
  if (c.drafts()) {
    layer_.num_accepted = memory_.list(std::vector<int32_t>(static_cast<size_t>(c.B), 2));
  }
  const Result<WorkspaceSize> size = layer_decode_workspace(layer_);
  if (size.ok() && size.value.bytes > 0) scratch_.reserve(memory_.machine(), size);
}

Status StepProblem::supported(std::string* kernel) const {
  RecurrentStepArgs step = step_;
  step.state.read_slots = slot_table_.sliced(0, 0, cell_.B);
  if (cell_.per_token) step.state.write_slots = step.state.read_slots;
  const Result<KernelChoice> choice = cell_.layer
                                          ? sluice::supported(SLUICE_OP_LAYER_DECODE, layer_)
                                          : sluice::supported(SLUICE_OP_RECURRENT_STEP, step);
  if (choice.ok()) *kernel = choice.value.name;
  return choice.status;
}

void StepProblem::call(int64_t launch, void* stream) {
  const TensorView slots = slot_table_.sliced(0, launch * cell_.B, cell_.B);
  Status status;
  if (cell_.layer) {
    layer_.state.read_slots = slots;
    take_cursors(launch, &layer_.ring);
    status = layer_decode(layer_, scratch_.get(), stream);
  } else {
    step_.state.read_slots = slots;
    if (cell_.per_token) step_.state.write_slots = slots;
    take_cursors(launch, &step_.ring);
    status = recurrent_step(step_, {}, stream);
  }
  require(status);
}

std::string StepProblem::trouble() const {
  const TensorView& out = cell_.layer ? layer_.out : step_.o;
  std::vector<std::byte> bytes(static_cast<size_t>(cell_.B * cell_.T * cell_.HV * cell_.V * 2));
  memory_.machine().download_rows(bytes.data(), out.data, bytes.size(), bytes.size(), 1);
  sluice_tensor view{};
  view.data = bytes.data();
  view.dtype = check::kBF16;
  bool any = false;
  for (int64_t i = 0; i < static_cast<int64_t>(bytes.size() / 2); ++i) {
    const double x = check::load_element(view, i);
    if (!std::isfinite(x)) return "the output is not a number somewhere";
    any = any || x != 0;
  }
  return any ? "" : "the output is zero everywhere";
}

}  // namespace sluice::tools
