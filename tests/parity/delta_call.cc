// Makes one call of chunk_forward or recurrent_step from a config and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "parity/delta_call.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "parity/operator_call.hpp"

namespace sluice::check {
namespace {

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Slots for n rows of `columns`, all different, starting at `first`.
std::vector<int64_t> distinct_slots(int64_t count, int64_t first, Random* random) {
  std::vector<int64_t> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), first);
  for (size_t i = slots.size(); i > 1; --i) {
    std::swap(slots[i - 1], slots[static_cast<size_t>(pick(random, static_cast<int64_t>(i)))]);
  }
  return slots;
}

/// All tensors of one call.
class Call {
 public:
  Call(const DeltaConfig& config, int workspace_fill)
      : c_(config),
        workspace_fill_(workspace_fill),
        random_(config.seed * 1000003 + 17),
        N_(config.sequences()) {
    rows_ = c_.packed ? c_.offsets().back() + c_.rows_past_end : c_.T;
    batch_ = c_.packed ? 1 : c_.B;
    make_tokens();
    make_gates_and_betas();
    make_slots();
    make_states();
    for (FreeTensor* tensor : all()) tensor->remember();
  }

  DeltaResult run(sluice_implementation implementation) {
    if (c_.op == SLUICE_OP_CHUNK_FORWARD) {
      sluice_chunk_forward_args args{};
      fill(&args, implementation);
      args.split = c_.split;
      args.split_value = c_.split_value;
      args.history = c_.history;
      if (c_.packed) args.max_tokens = told_longest();
      args.checkpoints = checkpoints_.view();
      args.checkpoint_slots = checkpoint_slots_.view();
      args.checkpoint_slots.shape[1] = checkpoint_columns_;
      args.checkpoint_every = c_.checkpoint_every;
      return run_with(args, sluice_chunk_forward);
    }
    sluice_recurrent_step_args args{};
    fill(&args, implementation);
    args.num_accepted = num_accepted_.view();
    args.max_tokens = c_.packed ? c_.most_tokens : 0;
    args.state_writes = c_.state_writes;
    return run_with(args, sluice_recurrent_step);
  }

 private:
  /// Of three seeds one is told nothing, one the truth, one something else.
  int64_t told_longest() const {
    const std::vector<int64_t> offsets = c_.offsets();
    int64_t longest = 0;
    for (size_t n = 1; n < offsets.size(); ++n) {
      longest = std::max(longest, offsets[n] - offsets[n - 1]);
    }
    const int64_t told[] = {0, longest, 1 + longest / 3};
    return told[c_.seed % 3];
  }

  Freedom free(Freedom wild) const { return c_.wild ? wild : Freedom::kDense; }

  FreeTensor input(sluice_dtype dtype, const Array& values, Freedom wild) {
    if (values.empty()) return {};
    FreeTensor tensor(dtype, values.shape, free(wild), &random_);
    tensor.assign(values.values);
    return tensor;
  }

  void make_tokens() {
    Array q = make_keys(KeyProfile::kRandomUnit, {batch_, rows_, c_.H, c_.K}, c_.seed + 1);
    Array k = make_keys(c_.keys, {batch_, rows_, c_.H, c_.K}, c_.seed + 2);
    if (c_.qk_norm == SLUICE_QK_NORM_L2) {
      for (double& value : q.values) value *= 3.0;
      for (double& value : k.values) value *= 5.0;
    }
    q_ = input(c_.io, q, Freedom::kInput);
    k_ = input(c_.io, k, Freedom::kInput);
    v_ = input(c_.io, make_normal({batch_, rows_, c_.HV, c_.V}, c_.seed + 3), Freedom::kInput);
    o_ = FreeTensor(c_.o, {batch_, rows_, c_.HV, c_.V}, free(Freedom::kOutput), &random_);
    if (!c_.packed) return;
    const std::vector<int64_t> offsets = c_.offsets();
    Array values({static_cast<int64_t>(offsets.size())});
    std::copy(offsets.begin(), offsets.end(), values.values.begin());
    cu_seqlens_ = FreeTensor(c_.index, values.shape, free(Freedom::kAnyOutput), &random_);
    cu_seqlens_.assign(values.values);
  }

  void make_gates_and_betas() {
    const std::vector<int64_t> shape{batch_, rows_, c_.HV};
    Array gate = c_.key_gates ? make_key_gates(c_.gates, {batch_, rows_, c_.HV, c_.K}, c_.seed + 4)
                              : make_gates(c_.gates, shape, c_.seed + 4);
    Array beta = make_betas(c_.betas, shape, c_.seed + 5);
    if (c_.rule == SLUICE_RULE_LINEAR_ATTENTION) beta = {};
    const bool raw = c_.gate_space >= SLUICE_GATE_RAW;
    if (raw) make_raw_gates(&gate);
    for (double& value : gate.values) {
      if (c_.gate_space == SLUICE_GATE_LINEAR) value = std::exp(value);
    }
    for (double& value : beta.values) {
      if (c_.beta_space == SLUICE_BETA_LOGIT) value = 4.0 * value - 2.0;
    }
    gate_ = input(c_.gate, gate, c_.key_gates ? Freedom::kInput : Freedom::kAnyInput);
    beta_ = input(c_.beta, beta, Freedom::kAnyInput);
  }

  /// Raw numbers in place of the gates, infinite where those are, and their parameters; key-wise RAW
  /// gates need A_log.
  void make_raw_gates(Array* gate) {
    const bool key_raw = c_.key_gates && c_.gate_space == SLUICE_GATE_RAW;
    const Array log = std::move(*gate);
    std::vector<int64_t> shape{batch_, rows_, c_.HV};
    if (c_.key_gates) shape.push_back(c_.K);
    *gate = make_normal(shape, c_.seed + 6);
    for (size_t i = 0; i < log.values.size(); ++i) {
      if (std::isinf(log.values[i])) gate->values[i] = -log.values[i];
    }
    if (c_.has_gate_parameters || key_raw) {
      A_log_ = input(c_.per_head, make_normal({c_.HV}, c_.seed + 7), Freedom::kAnyInput);
    }
    if (!c_.has_gate_parameters) return;
    shape.erase(shape.begin(), shape.begin() + 2);
    dt_bias_ = input(c_.per_head, make_normal(shape, c_.seed + 8),
                     c_.key_gates ? Freedom::kInput : Freedom::kAnyInput);
  }

  int64_t pad_value() { return c_.pad_below - 1 - pick(&random_, 3); }

  /// An [N, columns] (or [N]) table.
  FreeTensor table(const std::vector<int64_t>& slots) {
    std::vector<int64_t> shape{N_};
    if (c_.columns > 0) shape.push_back(c_.columns);
    FreeTensor tensor(c_.index, shape, free(Freedom::kAnyOutput), &random_);
    tensor.assign(std::vector<double>(slots.begin(), slots.end()));
    return tensor;
  }

  void make_slots() {
    const int64_t columns = std::max<int64_t>(c_.columns, 1), count = N_ * columns;
    const int64_t first = c_.pad_below;
    slots_in_pool_ = c_.slots == Slots::kNone ? N_ : first + 2 * count + 1;
    if (c_.slots == Slots::kNone) {
      for (int64_t n = 0; n < N_; ++n) written_.push_back(n);
    } else {
      const std::vector<int64_t> slots = distinct_slots(2 * count, first, &random_);
      std::vector<int64_t> read(slots.begin(), slots.begin() + count);
      std::vector<int64_t> write(slots.begin() + count, slots.end());
      for (const int64_t n : c_.padded)
        std::fill_n(read.begin() + n * columns, columns, pad_value());
      if (c_.slots != Slots::kSeparate) write = read;
      for (const int64_t n : c_.padded_writes) {
        std::fill_n(write.begin() + n * columns, columns, pad_value());
      }
      read_ = read;
      written_ = write;
      read_slots_ = table(read);
      if (c_.slots != Slots::kRead) write_slots_ = table(write);
    }
    if (!c_.fresh.empty()) {
      std::vector<double> flags;
      for (int64_t n = 0; n < N_; ++n) flags.push_back(contains(c_.fresh, n) ? 0 : 1);
      has_initial_ = FreeTensor(kBool, {N_}, free(Freedom::kAnyOutput), &random_);
      has_initial_.assign(flags);
    }
    if (!c_.num_accepted) return;
    std::vector<double> accepted(c_.accepted.begin(), c_.accepted.end());
    while (static_cast<int64_t>(accepted.size()) < N_) {
      accepted.push_back(static_cast<double>(pick(&random_, columns + 3)));
    }
    num_accepted_ = FreeTensor(c_.index, {N_}, free(Freedom::kAnyOutput), &random_);
    num_accepted_.assign(accepted);
  }

  FreeTensor pool(sluice_dtype dtype, int64_t slots) {
    const bool kv = c_.layout == SLUICE_STATE_KV;
    return FreeTensor(dtype, {slots, c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K},
                      free(Freedom::kPool), &random_);
  }

  /// Random states in the slots that are read; NaN in those of fresh sequences and all others.
  void make_states() {
    if (c_.has_initial) {
      initial_ = pool(c_.initial, slots_in_pool_);
      Array states = make_normal({slots_in_pool_, c_.HV * c_.K * c_.V}, c_.seed + 9);
      std::vector<bool> is_read(static_cast<size_t>(slots_in_pool_), c_.slots == Slots::kNone);
      for (const int64_t slot : read_) {
        if (slot >= c_.pad_below) is_read[static_cast<size_t>(slot)] = true;
      }
      const int64_t columns = std::max<int64_t>(c_.columns, 1);
      for (const int64_t n : c_.fresh) {
        for (int64_t i = n * columns; i < (n + 1) * columns; ++i) {
          const int64_t slot = c_.slots == Slots::kNone ? n : read_[static_cast<size_t>(i)];
          if (slot >= c_.pad_below) is_read[static_cast<size_t>(slot)] = false;
        }
      }
      const auto size = static_cast<size_t>(c_.HV * c_.K * c_.V);
      for (size_t slot = 0; slot < is_read.size(); ++slot) {
        if (is_read[slot]) continue;
        std::fill_n(states.values.begin() + static_cast<std::ptrdiff_t>(slot * size), size,
                    std::nan(""));
      }
      initial_.assign(states.values);
    }
    if (c_.has_final && !c_.in_place) final_ = pool(c_.final, slots_in_pool_);
    if (c_.checkpoint_every <= 0) return;
    int64_t longest = c_.packed ? 0 : c_.T;
    for (const int64_t length : c_.lengths) longest = std::max(longest, length);
    // One column less than the longest sequence has, where it has two or more.
    const int64_t M = std::max<int64_t>(1, longest / c_.checkpoint_every - (c_.seed % 2 == 0));
    std::vector<int64_t> slots = distinct_slots(N_ * M, c_.pad_below, &random_);
    if (!slots.empty() && (c_.wild || !c_.padded_writes.empty()))
      slots[slots.size() / 2] = pad_value();
    const int64_t spare = c_.pad_below + N_ * M;
    checkpoints_ = pool(c_.checkpoint, spare + 1);
    checkpoint_columns_ = M;
    // One column past the view: whoever reads it writes to a slot that is nobody's.
    checkpoint_slots_ = FreeTensor(c_.index, {N_, M + 1}, free(Freedom::kAnyOutput), &random_);
    std::vector<double> table;
    for (int64_t i = 0; i < N_ * M; ++i) {
      table.push_back(static_cast<double>(slots[static_cast<size_t>(i)]));
      if (i % M == M - 1) table.push_back(static_cast<double>(spare));
    }
    checkpoint_slots_.assign(table);
    kept_ = slots;
  }

  template <class Args>
  void fill(Args* args, sluice_implementation implementation) const {
    args->struct_size = sizeof *args;
    args->q = q_.view(), args->k = k_.view(), args->v = v_.view(), args->o = o_.view();
    args->gate = gate_.view(), args->beta = beta_.view();
    args->A_log = A_log_.view(), args->dt_bias = dt_bias_.view();
    args->cu_seqlens = cu_seqlens_.view();
    args->state.initial = initial_.view();
    if (c_.has_final) args->state.final = c_.in_place ? initial_.view() : final_.view();
    args->state.layout = c_.layout;
    args->state.pad_below = c_.pad_below;
    args->state.read_slots = read_slots_.view();
    args->state.write_slots = write_slots_.view();
    args->state.has_initial_state = has_initial_.view();
    args->options.scale = c_.scale.value_or(0.0);
    args->options.scale_mode = c_.scale.has_value() ? SLUICE_SCALE_VALUE : SLUICE_SCALE_DEFAULT;
    args->options.l2norm_eps = c_.l2norm_eps;
    args->options.gate_space = c_.gate_space;
    args->options.gate_lower_bound = c_.gate_lower_bound;
    args->options.beta_space = c_.beta_space;
    args->options.eigenvalues = c_.eigenvalues;
    args->options.qk_norm = c_.qk_norm;
    args->options.head_map = c_.head_map;
    args->options.rule = c_.rule;
    args->implementation = implementation;
  }

  template <class Args>
  DeltaResult run_with(const Args& args, int (*function)(const Args*, sluice_workspace, void*)) {
    const CallOutcome call = call_operator(c_.op, function, args, workspace_fill_);
    DeltaResult result;
    result.code = call.code, result.message = call.message, result.kernel = call.kernel;
    result.damage = call.damage;
    if (result.code != SLUICE_OK) return result;
    result.o = o_.values();
    result.initial = initial_.values();
    result.final = final_.values();
    result.checkpoints = checkpoints_.values();
    result.damage += damage();
    return result;
  }

  /// What changed that may not.
  std::string damage() {
    std::string list;
    for (const auto& [name, tensor] : {std::pair{"q", &q_},
                                       {"k", &k_},
                                       {"v", &v_},
                                       {"gate", &gate_},
                                       {"beta", &beta_},
                                       {"A_log", &A_log_},
                                       {"dt_bias", &dt_bias_},
                                       {"cu_seqlens", &cu_seqlens_},
                                       {"read_slots", &read_slots_},
                                       {"write_slots", &write_slots_},
                                       {"has_initial_state", &has_initial_},
                                       {"num_accepted", &num_accepted_},
                                       {"checkpoint_slots", &checkpoint_slots_}}) {
      if (!tensor->unchanged()) list += std::string(name) + " written; ";
    }
    for (const auto& [name, tensor] : {std::pair{"o", &o_},
                                       {"initial", &initial_},
                                       {"final", &final_},
                                       {"checkpoints", &checkpoints_}}) {
      if (!tensor->gaps_unchanged())
        list += std::string("memory between elements of ") + name + "; ";
    }
    const bool writes_initial = c_.in_place || (!c_.has_final && c_.op != SLUICE_OP_CHUNK_FORWARD &&
                                                c_.state_writes != SLUICE_STATE_WRITE_NONE);
    if (!writes_initial && !initial_.unchanged()) list += "initial written; ";
    const FreeTensor& written_pool = writes_initial ? initial_ : final_;
    for (int64_t slot = 0; written_pool.present() && slot < slots_in_pool_; ++slot) {
      if (contains(written_, slot) || written_pool.slot_unchanged(slot)) continue;
      list += "state slot " + std::to_string(slot) + "; ";
    }
    const int64_t checkpoints = checkpoints_.present() ? checkpoints_.view().shape[0] : 0;
    for (int64_t slot = 0; slot < checkpoints; ++slot) {
      if (contains(kept_, slot) || checkpoints_.slot_unchanged(slot)) continue;
      list += "checkpoint slot " + std::to_string(slot) + "; ";
    }
    return list;
  }

  std::vector<FreeTensor*> all() {
    return {&q_,
            &k_,
            &v_,
            &gate_,
            &beta_,
            &A_log_,
            &dt_bias_,
            &cu_seqlens_,
            &read_slots_,
            &write_slots_,
            &has_initial_,
            &num_accepted_,
            &checkpoint_slots_,
            &o_,
            &initial_,
            &final_,
            &checkpoints_};
  }

  const DeltaConfig& c_;
  int workspace_fill_;
  Random random_;
  int64_t N_, rows_ = 0, batch_ = 0, slots_in_pool_ = 0, checkpoint_columns_ = 0;
  FreeTensor q_, k_, v_, o_, gate_, beta_, A_log_, dt_bias_, cu_seqlens_;
  FreeTensor read_slots_, write_slots_, has_initial_, num_accepted_;
  FreeTensor initial_, final_, checkpoints_, checkpoint_slots_;
  std::vector<int64_t> read_, written_, kept_;
};

}  // namespace

std::vector<int64_t> DeltaConfig::offsets() const {
  if (!packed) return {};
  std::vector<int64_t> result(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), result.begin() + 1);
  return result;
}

DeltaResult run_delta(const DeltaConfig& config, sluice_implementation implementation,
                      int workspace_fill) {
  return Call(config, workspace_fill).run(implementation);
}

}  // namespace sluice::check
