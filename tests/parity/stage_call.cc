// Makes one call of chunk_stage from a configuration, with everything that it may not touch
// poisoned.
// SPDX-License-Identifier: Apache-2.0
#include "parity/stage_call.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "parity/draw.hpp"

namespace sluice::check {
namespace {

/// The tensors of one call. Inputs that the stage must not read do not exist.
class StageCall {
 public:
  StageCall(const StageConfig& c, sluice_implementation implementation, sluice_dtype out_dtype)
      : c_(c), out_(out_dtype), random_(c.seed) {
    args_.struct_size = sizeof args_;
    args_.stage = c.stage, args_.rule = c.rule, args_.head_map = c.head_map;
    args_.chunk_size = c.default_chunk ? 0 : static_cast<int32_t>(c.C);
    args_.direction = c.direction, args_.triangle = c.triangle;
    args_.matrices = c.matrix_rank > 0 ? SLUICE_MATRICES_BATCHED : SLUICE_MATRICES_CHUNKS;
    args_.state.layout = c.layout;
    args_.implementation = implementation;
    if (c.scale) args_.scale_mode = SLUICE_SCALE_VALUE, args_.scale = *c.scale;
    if (c.packed()) args_.cu_seqlens = indices(c.offsets());
    make_views();
    for (FreeTensor& t : tensors_) t.remember();
  }

  StageResult run(int workspace_fill) {
    const CallOutcome call =
        call_operator(SLUICE_OP_CHUNK_STAGE, sluice_chunk_stage, args_, workspace_fill);
    StageResult result{call.code, call.message, call.kernel, call.damage, {}};
    for (const FreeTensor& t : tensors_) {
      const auto output = std::find_if(outputs_.begin(), outputs_.end(),
                                       [&](const auto& o) { return o.second == &t; });
      if (output == outputs_.end()) {
        if (!t.unchanged()) result.damage += "an input was written; ";
        continue;
      }
      if (!t.gaps_unchanged()) result.damage += output->first + ": gaps were written; ";
      result.outputs.push_back({output->first, t.values(), t.view().dtype});
    }
    return result;
  }

 private:
  void make_views() {
    const bool delta = c_.rule == SLUICE_RULE_GATED_DELTA;
    switch (c_.stage) {
      case SLUICE_STAGE_CHUNK_CUMSUM:
        args_.gate = input(c_.gate, given_gates(), gate_freedom());
        write_sums();
        return;
      case SLUICE_STAGE_CUMSUM_KKT:
        args_.k = keys(2);
        args_.gate = input(c_.gate, gates(), gate_freedom());
        give_beta();
        write_sums();
        args_.A = output("A", out_, rows(c_.C), Freedom::kOutput);
        return;
      case SLUICE_STAGE_SCALED_DOT_KKT:
        args_.k = keys(2);
        give_gates();
        give_beta();
        args_.A = output("A", out_, rows(c_.C), Freedom::kOutput);
        return;
      case SLUICE_STAGE_SOLVE_TRIL:
        args_.A = input(c_.io, matrices(), Freedom::kOutput);
        args_.A_inverse = output("A_inverse", out_, matrix_shape(), Freedom::kOutput);
        return;
      case SLUICE_STAGE_WY_FAST:
        args_.k = keys(2);
        args_.v = values(3, c_.io);
        give_gates();
        give_beta();
        args_.A_inverse = input(c_.h, matrices(), Freedom::kOutput);
        give_updates();
        return;
      case SLUICE_STAGE_SOLVE_WY:
        args_.k = keys(2);
        args_.v = values(3, c_.io);
        give_gates();
        give_beta();
        args_.A = input(c_.h, matrices(), Freedom::kOutput);
        if (c_.v_new) args_.A_inverse = output("A_inverse", out_, matrix_shape(), Freedom::kOutput);
        give_updates();
        return;
      case SLUICE_STAGE_CHUNK_H:
        args_.k = keys(2);
        (delta ? args_.u : args_.v) = values(3, c_.io);
        if (delta) args_.w = input(c_.io, small_rows(c_.K), Freedom::kInput);
        give_gates();
        give_states();
        args_.h = c_.supplied_h ? output("h", c_.h, states_shape(), Freedom::kPool) : absent();
        if (delta && c_.v_new) args_.v_new = output("v_new", out_, rows(c_.V), Freedom::kOutput);
        return;
      case SLUICE_STAGE_CHUNK_O:
        args_.q = keys(1);
        args_.k = keys(2);
        (delta ? args_.v_new : args_.v) = values(3, c_.io);
        give_gates();
        if (c_.supplied_h) {
          args_.h = input(c_.h, make_normal(states_shape(), c_.seed + 8), Freedom::kPool);
        } else {
          give_states();
        }
        args_.o = output("o", out_, rows(c_.V), Freedom::kOutput);
    }
  }

  // ------------------------------------------------------------------------------- tensors ----

  static sluice_tensor absent() { return {}; }
  FreeTensor& add(sluice_dtype dtype, const std::vector<int64_t>& shape, Freedom wild) {
    return tensors_.emplace_back(dtype, shape, c_.wild ? wild : Freedom::kDense, &random_);
  }
  sluice_tensor input(sluice_dtype dtype, const Array& array, Freedom wild) {
    FreeTensor& t = add(dtype, array.shape, wild);
    t.assign(array.values);
    return t.view();
  }
  sluice_tensor output(const char* name, sluice_dtype dtype, const std::vector<int64_t>& shape,
                       Freedom wild) {
    FreeTensor& t = add(dtype, shape, wild);
    outputs_.emplace_back(name, &t);
    return t.view();
  }
  sluice_tensor indices(const std::vector<int64_t>& list) {
    Array array({static_cast<int64_t>(list.size())});
    for (size_t i = 0; i < list.size(); ++i) array.values[i] = static_cast<double>(list[i]);
    return input(chance(&random_, 2) ? kI32 : kI64, array, Freedom::kAnyOutput);
  }

  std::vector<int64_t> rows(int64_t columns) const { return {c_.B, c_.T, c_.HV, columns}; }
  std::vector<int64_t> states_shape() const {
    const bool kv = c_.layout == SLUICE_STATE_KV;
    // One entry more than there are chunks: not to be touched.
    return {c_.B, c_.chunks() + 1, c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
  }

  // -------------------------------------------------------------------------------- values ----

  sluice_tensor keys(uint64_t place) {
    return input(c_.io, make_keys(c_.keys, {c_.B, c_.T, c_.H, c_.K}, c_.seed + place),
                 Freedom::kInput);
  }
  sluice_tensor values(uint64_t place, sluice_dtype dtype) {
    return input(dtype, make_normal(rows(c_.V), c_.seed + place), Freedom::kInput);
  }
  Array small_rows(int64_t columns) const {
    Array array = make_normal(rows(columns), c_.seed + 4);
    for (double& x : array.values) x *= 0.3 / std::sqrt(static_cast<double>(columns));
    return array;
  }
  Array gates() const {
    Array g = c_.key_gates ? make_key_gates(c_.gates, rows(c_.K), c_.seed + 5)
                           : make_gates(c_.gates, {c_.B, c_.T, c_.HV}, c_.seed + 5);
    for (double& x : g.values) x += c_.growth;
    return g;
  }
  /// The gates in their space, and its parameters.
  Array given_gates() {
    Array g = gates();
    args_.gate_space = c_.gate_space;
    if (c_.gate_space == SLUICE_GATE_RAW_BOUNDED) args_.gate_lower_bound = -5;
    if (c_.gate_space == SLUICE_GATE_LINEAR) {
      for (double& x : g.values) x = std::exp(x);
    }
    if (c_.gate_space < SLUICE_GATE_RAW) return g;
    const std::vector<int64_t> heads{c_.HV}, channels{c_.HV, c_.K};
    if (c_.gate_parameters) {
      args_.A_log = input(c_.gate, make_normal(heads, c_.seed + 8), Freedom::kAnyInput);
      args_.dt_bias =
          input(c_.gate, make_normal(c_.key_gates ? channels : heads, c_.seed + 9), gate_freedom());
    }
    return make_normal(g.shape, c_.seed + 5);
  }
  Freedom gate_freedom() const { return c_.key_gates ? Freedom::kInput : Freedom::kAnyInput; }
  void give_gates() {
    if (c_.gates == GateProfile::kNone) return;
    Array g = gates();
    if (!c_.cumulated) {
      args_.gate = input(c_.gate, g, gate_freedom());
      return;
    }
    const int64_t width = c_.HV * (c_.key_gates ? c_.K : 1);
    for (int64_t at = 0; at < g.size(); ++at) {
      double& sum = g.values[static_cast<size_t>(at)];
      sum = std::max(sum, -128.0);
      if (place_of(at / width % c_.T).first > 0) sum += g.values[static_cast<size_t>(at - width)];
    }
    args_.g_cumsum = input(kF32, g, gate_freedom());
  }
  void write_sums() {
    args_.g_cumsum = c_.key_gates
                         ? output("g_cumsum", kF32, rows(c_.K), Freedom::kOutput)
                         : output("g_cumsum", kF32, {c_.B, c_.T, c_.HV}, Freedom::kAnyOutput);
  }
  void give_beta() {
    if (!c_.beta) return;
    args_.beta = input(c_.gate, make_betas(BetaProfile::kSigmoid, {c_.B, c_.T, c_.HV}, c_.seed + 6),
                       Freedom::kAnyInput);
  }
  void give_updates() {
    args_.u = output("u", out_, rows(c_.V), Freedom::kOutput);
    args_.w = output("w", out_, rows(c_.K), Freedom::kOutput);
  }
  void give_states() {
    const int64_t N = c_.sequences(), slots = c_.slots ? N + 2 : N;
    std::vector<int64_t> shape = states_shape();
    shape = {slots, c_.HV, shape[3], shape[4]};
    if (c_.initial) {
      args_.state.initial = input(c_.state, make_normal(shape, c_.seed + 7), Freedom::kPool);
    }
    if (c_.final) args_.state.final = output("final", c_.state, shape, Freedom::kPool);
    if (!c_.slots) return;
    std::vector<int64_t> list;
    for (int64_t n = 0; n < N; ++n) list.push_back((n + 1) % slots);
    for (const int64_t n : c_.padded) list[static_cast<size_t>(n)] = -1;
    args_.state.read_slots = indices(list);
  }

  /// Token t's place in its chunk, and the chunk's tokens.
  std::pair<int64_t, int64_t> place_of(int64_t t) const {
    int64_t begin = 0, end = c_.T;
    const std::vector<int64_t> cu = c_.offsets();
    for (size_t n = 0; n + 1 < cu.size(); ++n) {
      if (t >= cu[n] && t < cu[n + 1]) begin = cu[n], end = cu[n + 1];
    }
    const int64_t i = (t - begin) % c_.C;
    return {i, std::min(c_.C, end - (t - i))};
  }

  std::vector<int64_t> matrix_shape() const {
    switch (c_.matrix_rank) {
      case 2:
        return {c_.C, c_.C};
      case 3:
        return {c_.B, c_.C, c_.C};
      case 4:
        return {c_.B, c_.HV, c_.C, c_.C};
      default:
        return rows(c_.C);
    }
  }
  /// What a solve reads, or with its diagonal what wy_fast reads; NaN in the rest.
  Array matrices() const {
    const bool inverse = c_.stage == SLUICE_STAGE_WY_FAST;
    const bool upper = c_.triangle == SLUICE_TRIANGLE_UPPER && c_.stage == SLUICE_STAGE_SOLVE_TRIL;
    Array m = make_normal(matrix_shape(), c_.seed + 9);
    for (int64_t at = 0; at < m.size(); ++at) {
      double& x = m.values[static_cast<size_t>(at)];
      const int64_t j = at % c_.C;
      auto [i, n] = place_of(at / c_.C / c_.HV % c_.T);
      if (c_.matrix_rank > 0) i = at / c_.C % c_.C, n = c_.C;
      x *= 0.05;
      if (inverse && i == j) {
        x += 1.0;
      } else if (upper ? j <= i || j >= n : j >= i) {
        x = std::nan("");
      }
    }
    return m;
  }

  const StageConfig& c_;
  sluice_dtype out_;
  Random random_;
  sluice_chunk_stage_args args_{};
  std::deque<FreeTensor> tensors_;
  std::vector<std::pair<std::string, const FreeTensor*>> outputs_;
};

}  // namespace

std::vector<int64_t> StageConfig::offsets() const {
  if (!packed()) return {};
  std::vector<int64_t> cu = {0};
  for (const int64_t length : lengths) cu.push_back(cu.back() + length);
  return cu;
}
int64_t StageConfig::sequences() const {
  return packed() ? static_cast<int64_t>(lengths.size()) : B;
}
int64_t StageConfig::chunks() const {
  if (!packed()) return (T + C - 1) / C;
  int64_t count = 0;
  for (const int64_t length : lengths) count += (length + C - 1) / C;
  return count;
}

StageResult run_stage(const StageConfig& config, sluice_implementation implementation,
                      std::optional<sluice_dtype> out_dtype, int workspace_fill) {
  return StageCall(config, implementation, out_dtype.value_or(config.out)).run(workspace_fill);
}

Verdict judge_stage(const StageConfig& c, const StageResult& found, const StageResult& truth) {
  if (found.code != SLUICE_OK) return {false, found.message};
  if (truth.code != SLUICE_OK || found.outputs.size() != truth.outputs.size()) {
    return {false, "truth: " + truth.message};
  }
  Verdict verdict{found.damage.empty(), found.damage};
  for (size_t i = 0; i < found.outputs.size(); ++i) {
    const StageOutput& x = found.outputs[i];
    const StageOutput& ref = truth.outputs[i];
    if (x.values.size() == 0) continue;
    // One rounding of the stored value, by less than 2 units in a few elements and by less than 1
    // in the mean of many, and float32 arithmetic before it.
    const double unit = same_dtype(x.dtype, kBF16)  ? 0x1p-9
                        : same_dtype(x.dtype, kF16) ? 0x1p-12
                                                    : 0.0;
    const double few = 2 * unit + 1e-5, whole = x.values.size() < 256 ? few : unit + 1e-5;
    const bool states = x.name == "final" || c.matrix_rank > 0;
    const Comparison comparison = states
                                      ? compare_whole(view_of(x.values), view_of(ref.values))
                                      : compare_tokens(view_of(x.values), view_of(ref.values), {});
    const Verdict part = judge(x.name, comparison, {whole, few, 2 * few});
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  }
  return verdict;
}

}  // namespace sluice::check
