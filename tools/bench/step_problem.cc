// Allocates a step's tensors and pools and points calls into them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/step_problem.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include "check/array.hpp"

namespace sluice::tools {
namespace {

// Several times the L2 of any GPU.
constexpr int64_t kColdBytes = int64_t{1} << 30;
constexpr int64_t kFewestLaunches = 8, kMostLaunches = 256;
// Random numbers are made once and repeated: tensors may have billions of elements.
constexpr int64_t kPattern = 1 << 20;

sluice_dtype dtype_of(const std::string& name) {
  return name == "fp32" ? check::kF32 : (name == "bf16" ? check::kBF16 : check::kF16);
}

int64_t launches_of(const StepCell& c) {
  const int64_t bytes = c.B * c.state_bytes() * (c.per_token ? c.T : 1);
  return std::clamp((kColdBytes + bytes - 1) / bytes, kFewestLaunches, kMostLaunches);
}

}  // namespace

StepProblem::StepProblem(Machine& machine, const StepCell& cell)
    : machine_(machine), cell_(cell), launches_(launches_of(cell)) {
  slots_ = launches_ * cell.B * (cell.per_token ? cell.T : 1);
  make_slots();
  if (cell.layer) {
    make_layer();
  } else {
    make_step();
  }
}

std::shared_ptr<void> StepProblem::random_elements(sluice_dtype dtype, int64_t count,
                                                   double scale) {
  const int64_t width = dtype.bits / 8;
  const int64_t pattern = std::min(count, kPattern);
  std::vector<std::byte> bytes(static_cast<size_t>(pattern * width));
  sluice_tensor view{};
  view.data = bytes.data();
  view.dtype = dtype;
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < pattern && scale > 0; ++i) {
    check::store_element(view, i, scale * normal(random));
  }
  std::shared_ptr<void> memory = machine_.allocate(static_cast<size_t>(count * width));
  for (int64_t done = 0; done < count; done += pattern) {
    const int64_t part = std::min(pattern, count - done);
    machine_.upload(static_cast<std::byte*>(memory.get()) + done * width, bytes.data(),
                    static_cast<size_t>(part * width));
  }
  return memory;
}

TensorView StepProblem::view(sluice_dtype dtype, std::vector<int64_t> shape, double scale) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
  memory_.push_back(random_elements(dtype, count, scale));
  TensorView out{};
  sluice_tensor raw{};
  raw.data = memory_.back().get();
  raw.device = machine_.device();
  raw.dtype = dtype;
  raw.rank = static_cast<uint16_t>(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    raw.shape[axis] = shape[axis];
    raw.stride[axis] = stride;
  }
  static_cast<sluice_tensor&>(out) = raw;
  return out;
}

/// Slots in random order, as an allocator's are after a while.
void StepProblem::make_slots() {
  std::vector<int32_t> slots(static_cast<size_t>(slots_));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), std::mt19937(7));
  const int64_t columns = cell_.per_token ? cell_.T : 1, rows = launches_ * cell_.B;
  slot_table_ = view(check::kI32, {rows, columns}, 0.0);
  machine_.upload(slot_table_.data, slots.data(), slots.size() * sizeof(int32_t));
  if (!cell_.per_token) {
    slot_table_.rank = 1;
    return;
  }
  const std::vector<int32_t> accepted(static_cast<size_t>(cell_.B), 1);
  accepted_ = view(check::kI32, {cell_.B}, 0.0);
  machine_.upload(accepted_.data, accepted.data(), accepted.size() * sizeof(int32_t));
}

void StepProblem::make_step() {
  const StepCell& c = cell_;
  const auto io = check::kBF16;
  step_.q = view(io, {c.B, c.T, c.H, c.K});
  step_.k = view(io, {c.B, c.T, c.H, c.K});
  step_.v = view(io, {c.B, c.T, c.HV, c.V});
  step_.o = view(io, {c.B, c.T, c.HV, c.V}, 0.0);
  step_.gate = c.key_gates ? view(io, {c.B, c.T, c.HV, c.K}) : view(io, {c.B, c.T, c.HV});
  step_.beta = view(io, {c.B, c.T, c.HV});
  step_.A_log = view(check::kF32, {c.HV});
  step_.dt_bias = c.key_gates ? view(check::kF32, {c.HV, c.K}) : view(check::kF32, {c.HV});
  step_.state.initial = view(dtype_of(c.state), {slots_, c.HV, c.K, c.V}, 0.1);
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
  ring->k = view(dtype_of(c.entry), {slots_, c.ring, c.H, c.K}, 0.1);
  ring->delta = view(dtype_of(c.entry), {slots_, c.ring, c.HV, c.V}, 0.1);
  ring->decay = view(check::kF32, {slots_, c.ring, c.HV});
  const std::vector<float> decays(static_cast<size_t>(slots_ * c.ring * c.HV), 0.95f);
  machine_.upload(ring->decay.data, decays.data(), decays.size() * sizeof(float));
  const std::vector<int64_t> samples = ring_samples(c, rows);
  std::vector<int32_t> positions, checkpoints;
  for (int64_t row = 0; row < rows; ++row) {
    positions.push_back(static_cast<int32_t>(1000 + row));
    checkpoints.push_back(positions.back() -
                          static_cast<int32_t>(samples[static_cast<size_t>(row)]));
  }
  position_ = view(check::kI32, {rows}, 0.0);
  checkpoint_ = view(check::kI32, {rows}, 0.0);
  ring->next_checkpoint = view(check::kI32, {c.B}, 0.0);
  machine_.upload(position_.data, positions.data(), positions.size() * sizeof(int32_t));
  machine_.upload(checkpoint_.data, checkpoints.data(), checkpoints.size() * sizeof(int32_t));
  take_cursors(0, ring);
}

void StepProblem::take_cursors(int64_t launch, ReplayRing* ring) const {
  if (cell_.ring == 0) return;
  ring->position = position_.sliced(0, launch * cell_.B, cell_.B);
  ring->checkpoint = checkpoint_.sliced(0, launch * cell_.B, cell_.B);
}

void StepProblem::make_layer() {
  const StepCell& c = cell_;
  const auto io = check::kBF16;
  const int64_t D = c.conv_channels();
  layer_.qkv = view(io, {c.B, c.T, D});
  layer_.z = view(io, {c.B, c.T, c.HV * c.V});
  layer_.b = view(io, {c.B, c.T, c.HV});
  layer_.a = view(io, {c.B, c.T, c.HV});
  layer_.conv_weight = view(io, {D, kConvWidth}, 0.5);
  layer_.A_log = view(check::kF32, {c.HV});
  layer_.dt_bias = view(check::kF32, {c.HV});
  layer_.norm_weight = view(io, {c.V});
  layer_.out = view(io, {c.B, c.T, c.HV, c.V}, 0.0);
  layer_.conv_initial = view(io, {slots_, D, c.conv_columns()});
  layer_.state.initial = view(dtype_of(c.state), {slots_, c.HV, c.K, c.V}, 0.1);
  layer_.num_k_heads = c.H, layer_.num_v_heads = c.HV;
  layer_.head_k_dim = c.K, layer_.head_v_dim = c.V;
  layer_.implementation = Implementation::kCuda;
  layer_.state.read_slots = slot_table_.sliced(0, 0, c.B);
  if (c.ring > 0) make_ring(&layer_.ring);
  if (c.drafts()) {
    const std::vector<int32_t> accepted(static_cast<size_t>(c.B), 2);
    layer_.num_accepted = view(check::kI32, {c.B}, 0.0);
    machine_.upload(layer_.num_accepted.data, accepted.data(), accepted.size() * sizeof(int32_t));
  }
  const Result<WorkspaceSize> size = layer_decode_workspace(layer_);
  if (!size.ok() || size.value.bytes == 0) return;
  scratch_ = machine_.allocate(size.value.bytes);
  scratch_bytes_ = size.value.bytes;
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
    status = layer_decode(layer_, {scratch_.get(), scratch_bytes_}, stream);
  } else {
    step_.state.read_slots = slots;
    if (cell_.per_token) step_.state.write_slots = slots;
    take_cursors(launch, &step_.ring);
    status = recurrent_step(step_, {}, stream);
  }
  if (!status.ok()) throw std::runtime_error(status.message);
}

std::string StepProblem::trouble() const {
  const TensorView& out = cell_.layer ? layer_.out : step_.o;
  std::vector<std::byte> bytes(static_cast<size_t>(cell_.B * cell_.T * cell_.HV * cell_.V * 2));
  machine_.download_rows(bytes.data(), out.data, bytes.size(), bytes.size(), 1);
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
