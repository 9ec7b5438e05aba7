// Runs a Gated DeltaNet case: inputs become views, views a call of the C interface, and outputs
// arrays.
// SPDX-License-Identifier: Apache-2.0
#include "support/case_runner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "check/device_copy.hpp"
#include "check/views.hpp"

namespace sluice::check {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Slot of sequence n among `slots`: every third one from the end, so that order and gaps show.
int64_t shuffled_slot(int64_t n, int64_t slots) { return slots - 2 - 3 * n; }

/// Element (k, v) of a head's state as an offset in a pool of either layout.
int64_t state_offset(const sluice_tensor& pool, sluice_state_layout layout, int64_t slot, int64_t h,
                     int64_t i, int64_t j) {
  const bool kv = layout == SLUICE_STATE_KV;
  return slot * pool.stride[0] + h * pool.stride[1] + (kv ? i : j) * pool.stride[2] +
         (kv ? j : i) * pool.stride[3];
}

/// A pool of states and the slots used in it; all other slots hold NaN.
class StatePool {
 public:
  StatePool(const GdnCase& c, sluice_dtype dtype, int64_t slots)
      : layout_(c.state_layout),
        tensor_(dtype,
                c.state_layout == SLUICE_STATE_KV ? std::vector<int64_t>{slots, c.HV, c.K, c.V}
                                                  : std::vector<int64_t>{slots, c.HV, c.V, c.K},
                c.pool),
        used_(static_cast<size_t>(slots), false) {}

  const sluice_tensor& view() const noexcept { return tensor_.view(); }
  void mark(int64_t slot) { used_[static_cast<size_t>(slot)] = true; }

  /// Copies [HV,K,V] elements between a slot and `states` from flat position `first`.
  void put(int64_t slot, const Array& states, size_t first) {
    mark(slot);
    walk(slot, [&](int64_t offset) { store_element(view(), offset, states.values[first++]); });
  }
  void get(int64_t slot, Array* states, size_t first) const {
    walk(slot, [&](int64_t offset) { states->values[first++] = load_element(view(), offset); });
  }
  /// Guards unchanged and NaN still in every slot that was not marked.
  bool intact() const {
    bool nan_everywhere = tensor_.guards_intact();
    for (size_t slot = 0; slot < used_.size(); ++slot) {
      if (used_[slot]) continue;
      walk(static_cast<int64_t>(slot), [&](int64_t offset) {
        nan_everywhere = nan_everywhere && std::isnan(load_element(view(), offset));
      });
    }
    return nan_everywhere;
  }

 private:
  template <class Body>
  void walk(int64_t slot, Body body) const {
    const bool kv = layout_ == SLUICE_STATE_KV;
    const int64_t K = view().shape[kv ? 2 : 3], V = view().shape[kv ? 3 : 2];
    for (int64_t h = 0; h < view().shape[1]; ++h) {
      for (int64_t i = 0; i < K; ++i) {
        for (int64_t j = 0; j < V; ++j) body(state_offset(view(), layout_, slot, h, i, j));
      }
    }
  }

  sluice_state_layout layout_;
  TestTensor tensor_;
  std::vector<bool> used_;
};

/// The memory of one call.
class Call {
 public:
  Call(const GdnCase& c, const GdnInputs& inputs, const RunOptions& options, bool step)
      : case_(c),
        q_(c.io, inputs.q, c.tokens),
        k_(c.io, inputs.k, c.tokens),
        v_(c.io, inputs.v, c.tokens),
        gate_(c.gate_dtype, inputs.gate),
        beta_(c.gate_dtype, inputs.beta),
        A_log_(kF32, inputs.A_log),
        dt_bias_(kF32, inputs.dt_bias),
        o_(options.o_dtype.value_or(c.io), {c.B, c.T, c.HV, c.V}, c.tokens) {
    if (!c.lengths.empty()) cu_seqlens_ = TestTensor::of_indices(c.index_dtype, c.cu_seqlens());
    make_states(inputs, options.state_dtype.value_or(c.state_dtype), step);
    if (!step && c.checkpoint_every > 0) make_checkpoints(options);
  }

  template <class Args>
  void fill(Args* args, const RunOptions& options) const {
    args->struct_size = sizeof *args;
    args->q = q_.view(), args->k = k_.view(), args->v = v_.view();
    args->gate = gate_.view(), args->beta = beta_.view();
    args->A_log = A_log_.view(), args->dt_bias = dt_bias_.view();
    args->o = o_.view();
    args->cu_seqlens = cu_seqlens_.view();
    fill_state(&args->state);
    args->options = case_.options.c();
    args->implementation = options.implementation;
  }

  void fill_prefill(sluice_chunk_forward_args* args) const {
    args->split = case_.split;
    args->split_value = case_.split_value;
    args->history = case_.history;
    args->max_tokens = case_.max_tokens;
    if (!checkpoints_) return;
    args->checkpoints = checkpoints_->view();
    args->checkpoint_slots = checkpoint_slots_.view();
    args->checkpoint_every = case_.checkpoint_every;
  }

  /// What the call wrote.
  void collect(GdnOutputs* outputs) const {
    outputs->o = o_.values();
    const StatePool& final = in_place_ ? *initial_ : *final_;
    const int64_t N = case_.sequences();
    outputs->final_state = Array({N, case_.HV, case_.K, case_.V}, kNaN);
    for (int64_t n = 0; n < N; ++n) {
      if (contains(case_.padded, n)) continue;
      final.get(slot(n), &outputs->final_state, outputs->final_state.position(n, 0, 0, 0));
    }
    if (checkpoints_) {
      outputs->checkpoints = Array({N, columns_, case_.HV, case_.K, case_.V}, kNaN);
      for (int64_t i = 0; i < N * columns_; ++i) {
        const auto size = static_cast<size_t>(case_.HV * case_.K * case_.V);
        checkpoints_->get(i, &outputs->checkpoints, static_cast<size_t>(i) * size);
      }
    }
    outputs->memory_intact = memory_intact();
  }

 private:
  int64_t pool_slots() const { return case_.slots ? 3 * case_.sequences() + 1 : case_.sequences(); }
  int64_t slot(int64_t n) const { return case_.slots ? shuffled_slot(n, pool_slots()) : n; }

  void make_states(const GdnInputs& inputs, sluice_dtype final_dtype, bool step) {
    const int64_t N = case_.sequences();
    const bool same = same_dtype(final_dtype, case_.state_dtype);
    // Steps always read a pool.
    const bool has_pool = step || !inputs.initial.empty();
    in_place_ = case_.in_place && same && has_pool;
    if (has_pool) initial_.emplace(case_, case_.state_dtype, pool_slots());
    if (!in_place_) final_.emplace(case_, final_dtype, pool_slots());
    const Array zeros({N, case_.HV, case_.K, case_.V});
    std::vector<int64_t> slots, flags;
    for (int64_t n = 0; n < N; ++n) {
      const bool padded = contains(case_.padded, n), skip = contains(case_.no_initial, n);
      slots.push_back(padded ? -1 : slot(n));
      flags.push_back(skip ? 0 : 1);
      if (padded) continue;
      if (final_) final_->mark(slot(n));
      if (!initial_) continue;
      const Array& source = inputs.initial.empty() ? zeros : inputs.initial;
      initial_->mark(slot(n));
      if (!skip) initial_->put(slot(n), source, source.position(n, 0, 0, 0));
    }
    if (case_.slots) slots_ = TestTensor::of_indices(case_.index_dtype, slots);
    if (!case_.no_initial.empty()) has_initial_ = TestTensor::of_indices(kBool, flags);
  }

  void make_checkpoints(const RunOptions& options) {
    const auto longest = std::max_element(case_.lengths.begin(), case_.lengths.end());
    columns_ = (case_.lengths.empty() ? case_.T : *longest) / case_.checkpoint_every;
    const int64_t count = case_.sequences() * columns_;
    checkpoints_.emplace(case_, options.state_dtype.value_or(case_.state_dtype), count);
    Array slots({case_.sequences(), columns_});
    for (int64_t i = 0; i < count; ++i) {
      checkpoints_->mark(i);
      slots.values[static_cast<size_t>(i)] = static_cast<double>(i);
    }
    checkpoint_slots_ = TestTensor(case_.index_dtype, slots);
  }

  void fill_state(sluice_state_io* state) const {
    if (initial_) state->initial = initial_->view();
    state->final = in_place_ ? initial_->view() : final_->view();
    state->layout = case_.state_layout;
    state->read_slots = slots_.view();
    state->has_initial_state = has_initial_.view();
  }

  bool memory_intact() const {
    for (const TestTensor* tensor : {&q_, &k_, &v_, &gate_, &beta_, &A_log_, &dt_bias_, &o_,
                                     &cu_seqlens_, &slots_, &has_initial_, &checkpoint_slots_}) {
      if (!tensor->guards_intact()) return false;
    }
    return (!initial_ || initial_->intact()) && (!final_ || final_->intact()) &&
           (!checkpoints_ || checkpoints_->intact());
  }

  const GdnCase& case_;
  TestTensor q_, k_, v_, gate_, beta_, A_log_, dt_bias_, o_;
  TestTensor cu_seqlens_, slots_, has_initial_, checkpoint_slots_;
  std::optional<StatePool> initial_, final_, checkpoints_;
  bool in_place_ = false;
  int64_t columns_ = 0;  // checkpoints of the longest sequence
};

template <class Args>
using Function = int (*)(const Args*, sluice_workspace, void*);

/// The call on host memory; true if nothing outside the workspace was written.
template <class Args>
bool call_on_host(sluice_op op, Function<Args> function, const Args& args, GdnOutputs* outputs) {
  size_t bytes = 0;
  outputs->code = sluice_workspace_size(op, &args, &bytes);
  TestWorkspace workspace(bytes);
  if (outputs->code == SLUICE_OK) outputs->code = function(&args, workspace.get(), nullptr);
  outputs->message = sluice_last_error();
  return workspace.guards_intact();
}

/// The call on device copies, results copied back to where the host's would be.
template <class Args>
bool call_on_device(sluice_op op, Function<Args> function, Args args, GdnOutputs* outputs) {
  const std::unique_ptr<DeviceCopy> device = make_device_copy();
  device->upload(views_of(&args));
  size_t bytes = 0;
  outputs->code = sluice_workspace_size(op, &args, &bytes);
  if (outputs->code == SLUICE_OK) {
    outputs->code = function(&args, device->workspace(bytes, 0xff), nullptr);
  }
  outputs->message = sluice_last_error();
  const std::string trouble = device->download();
  outputs->message += trouble;
  return trouble.empty();
}

template <class Args>
GdnOutputs run(sluice_op op, Function<Args> function, const Args& args, const Call& call) {
  GdnOutputs outputs;
  const bool intact = args.implementation == SLUICE_IMPL_CUDA
                          ? call_on_device(op, function, args, &outputs)
                          : call_on_host(op, function, args, &outputs);
  outputs.kernel = sluice_last_kernel();
  if (outputs.code != SLUICE_OK) return outputs;
  call.collect(&outputs);
  outputs.memory_intact = outputs.memory_intact && intact;
  return outputs;
}

struct Limits {
  Tolerance o, state;
  Tolerance state_cap;  ///< for checkpoints, which the yardstick does not store
};

/// float32 is held to the caps; where something rounds to 16 bits, the yardstick decides.
Limits limits_of(const GdnCase& c, const GdnInputs& inputs, const GdnOutputs& truth) {
  const bool correlated = c.keys == KeyProfile::kCos75 || c.keys == KeyProfile::kCos90;
  const bool degenerate = c.keys == KeyProfile::kIdentical || c.keys == KeyProfile::kAntiParallel;
  const auto conditioning = degenerate   ? Conditioning::kDegenerate
                            : correlated ? Conditioning::kCorrelated
                                         : Conditioning::kBenign;
  const bool io_rounds = !same_dtype(c.io, kF32), state_rounds = !same_dtype(c.state_dtype, kF32);
  const bool state_is_coarser = same_dtype(c.state_dtype, kBF16) || (state_rounds && !io_rounds);
  const Tolerance state_cap =
      cap(state_is_coarser ? c.state_dtype : c.io, Quantity::kState, conditioning);
  Limits limits{cap(c.io, Quantity::kOutput, conditioning), state_cap, state_cap};
  if (!(io_rounds || state_rounds) || !c.padded.empty()) return limits;
  const YardstickOutputs yardstick = yardstick_of(c, inputs);
  if (io_rounds) {
    limits.o = from_yardstick(
        compare_tokens(view_of(yardstick.o), view_of(truth.o), c.cu_seqlens()), limits.o, c.io);
  }
  limits.state =
      from_yardstick(compare_states(view_of(yardstick.final_state), view_of(truth.final_state)),
                     limits.state, state_is_coarser ? c.state_dtype : c.io);
  return limits;
}

/// [N,M,HV,K,V] as [N*M,HV,K,V].
Array flat_checkpoints(Array checkpoints) {
  checkpoints.shape[1] *= checkpoints.shape[0];
  checkpoints.shape.erase(checkpoints.shape.begin());
  return checkpoints;
}

}  // namespace

GdnOutputs run_chunk_forward(const GdnCase& c, const GdnInputs& inputs, const RunOptions& options) {
  const Call call(c, inputs, options, false);
  sluice_chunk_forward_args args{};
  call.fill(&args, options);
  call.fill_prefill(&args);
  return run(SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward, args, call);
}

GdnOutputs run_recurrent_step(const GdnCase& c, const GdnInputs& inputs,
                              const RunOptions& options) {
  const Call call(c, inputs, options, true);
  sluice_recurrent_step_args args{};
  call.fill(&args, options);
  if (!c.lengths.empty()) args.max_tokens = 16;
  return run(SLUICE_OP_RECURRENT_STEP, sluice_recurrent_step, args, call);
}

std::vector<sluice_implementation> implementations_under_test() {
  if (make_device_copy != nullptr) return {SLUICE_IMPL_CUDA};
  return {SLUICE_IMPL_CPU, SLUICE_IMPL_REFERENCE_CHUNKED};
}

GdnOutputs truth_of(const GdnCase& c, const GdnInputs& inputs) {
  return run_chunk_forward(c, inputs, {SLUICE_IMPL_REFERENCE, kF32, kF32});
}

Verdict judge_run(const GdnCase& c, const GdnInputs& inputs, const GdnOutputs& outputs,
                  const GdnOutputs& truth) {
  if (outputs.code != SLUICE_OK || truth.code != SLUICE_OK) {
    return {false, outputs.message + truth.message + "  FAIL"};
  }
  const std::vector<int64_t> rows = c.cu_seqlens();
  const Limits limits = limits_of(c, inputs, truth);
  Verdict verdict{outputs.memory_intact, outputs.memory_intact ? "" : "memory  FAIL: changed\n"};
  const auto add = [&](const Verdict& part) {
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  };
  if (rows.empty() ? c.B * c.T > 0 : rows.back() > 0) {
    add(judge("o", compare_tokens(view_of(outputs.o), view_of(truth.o), rows), limits.o));
  }
  if (c.sequences() > 0) {
    const auto found = compare_states(view_of(outputs.final_state), view_of(truth.final_state));
    add(judge("final_state", found, limits.state));
  }
  if (truth.checkpoints.size() > 0) {
    const auto found = compare_states(view_of(flat_checkpoints(outputs.checkpoints)),
                                      view_of(flat_checkpoints(truth.checkpoints)));
    add(judge("checkpoints", found, limits.state_cap));
  }
  return verdict;
}

}  // namespace sluice::check
