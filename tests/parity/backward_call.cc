// Makes one call of chunk_backward from a configuration, with everything that it may not touch
// poisoned.
// SPDX-License-Identifier: Apache-2.0
#include "parity/backward_call.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "parity/draw.hpp"

namespace sluice::check {
namespace {

/// The tensors of one call.
class BackwardCall {
 public:
  BackwardCall(const BackwardConfig& c, sluice_implementation implementation, sluice_dtype gradient)
      : c_(c), gradient_(gradient), random_(c.seed) {
    args_.struct_size = sizeof args_;
    args_.options.rule = c.rule, args_.options.head_map = c.head_map,
    args_.options.qk_norm = c.qk_norm;
    args_.options.gate_lower_bound = c.gate_lower_bound;
    args_.options.gate_space = c.gate_space, args_.options.beta_space = c.beta_space;
    args_.options.eigenvalues = c.eigenvalues, args_.state_layout = c.layout;
    args_.implementation = implementation;
    if (c.scale) args_.options.scale_mode = SLUICE_SCALE_VALUE, args_.options.scale = *c.scale;
    if (c.packed()) args_.cu_seqlens = offsets();
    give_inputs();
    give_outputs();
    for (FreeTensor& t : tensors_) t.remember();
  }

  BackwardResult run(int workspace_fill) {
    const CallOutcome call =
        call_operator(SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward, args_, workspace_fill);
    BackwardResult result{call.code, call.message, call.kernel, call.damage, {}};
    for (const FreeTensor& t : tensors_) {
      const auto output = std::find_if(outputs_.begin(), outputs_.end(),
                                       [&](const auto& o) { return o.second == &t; });
      if (output == outputs_.end()) {
        if (!t.unchanged()) result.damage += "an input was written; ";
        continue;
      }
      if (!t.gaps_unchanged()) result.damage += output->first + ": gaps were written; ";
      result.gradients.emplace_back(output->first, t.values());
    }
    return result;
  }

 private:
  sluice_tensor input(sluice_dtype dtype, const Array& array, Freedom wild) {
    FreeTensor& t =
        tensors_.emplace_back(dtype, array.shape, c_.wild ? wild : Freedom::kDense, &random_);
    t.assign(array.values);
    return t.view();
  }
  void output(int place, const char* name, const std::vector<int64_t>& shape, Freedom wild,
              sluice_tensor* to) {
    if (!c_.outputs[place]) return;
    FreeTensor& t =
        tensors_.emplace_back(gradient_, shape, c_.wild ? wild : Freedom::kDense, &random_);
    outputs_.emplace_back(name, &t);
    *to = t.view();
  }
  sluice_tensor offsets() {
    const std::vector<int64_t> list = c_.offsets();
    Array array({static_cast<int64_t>(list.size())});
    for (size_t i = 0; i < list.size(); ++i) array.values[i] = static_cast<double>(list[i]);
    return input(chance(&random_, 2) ? kI32 : kI64, array, Freedom::kAnyOutput);
  }

  std::vector<int64_t> keys() const { return {c_.B, c_.T, c_.H, c_.K}; }
  std::vector<int64_t> values() const { return {c_.B, c_.T, c_.HV, c_.V}; }
  std::vector<int64_t> heads() const { return {c_.B, c_.T, c_.HV}; }
  std::vector<int64_t> states() const {
    const bool kv = c_.layout == SLUICE_STATE_KV;
    return {c_.sequences(), c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
  }
  bool delta() const { return c_.rule == SLUICE_RULE_GATED_DELTA; }
  bool gated() const { return c_.gates != GateProfile::kNone; }

  std::vector<int64_t> gates() const {
    std::vector<int64_t> shape = heads();
    if (c_.key_gates) shape.push_back(c_.K);
    return shape;
  }
  std::vector<int64_t> biases() const {
    return c_.key_gates ? std::vector<int64_t>{c_.HV, c_.K} : std::vector<int64_t>{c_.HV};
  }
  Freedom gate_freedom(Freedom scalar, Freedom rows) const { return c_.key_gates ? rows : scalar; }

  Array gate_values() const {
    if (c_.gate_space >= SLUICE_GATE_RAW) return make_normal(gates(), c_.seed + 5);
    Array g = c_.key_gates ? make_key_gates(c_.gates, gates(), c_.seed + 5)
                           : make_gates(c_.gates, gates(), c_.seed + 5);
    for (double& x : g.values) x = c_.gate_space == SLUICE_GATE_LINEAR ? std::exp(x) : x;
    return g;
  }
  void give_inputs() {
    // Raw q and k of a norm have lengths far from 1.
    const double length = c_.qk_norm == SLUICE_QK_NORM_L2 ? 3.0 : 1.0;
    const auto scaled = [&](Array a) {
      for (double& x : a.values) x *= length;
      return a;
    };
    args_.q = input(c_.io, scaled(make_keys(KeyProfile::kRandomUnit, keys(), c_.seed + 1)),
                    Freedom::kInput);
    args_.k = input(c_.io, scaled(make_keys(c_.keys, keys(), c_.seed + 2)), Freedom::kInput);
    Array v = make_normal(values(), c_.seed + 3);
    if (c_.not_a_number >= 0) v(0, c_.not_a_number, 0, 0) = std::nan("");
    args_.v = input(c_.io, v, Freedom::kInput);
    args_.d_o = input(c_.d_o, make_normal(values(), c_.seed + 4), Freedom::kInput);
    const Freedom wild = gate_freedom(Freedom::kAnyInput, Freedom::kInput);
    if (gated()) args_.gate = input(c_.gate, gate_values(), wild);
    if (delta() && c_.beta) {
      const Array beta = c_.beta_space == SLUICE_BETA_LOGIT
                             ? make_normal(heads(), c_.seed + 6)
                             : make_betas(BetaProfile::kSigmoid, heads(), c_.seed + 6);
      args_.beta = input(c_.gate, beta, Freedom::kAnyInput);
    }
    if (c_.gate_space >= SLUICE_GATE_RAW && c_.has_gate_parameters) {
      args_.A_log = input(kF32, make_normal({c_.HV}, c_.seed + 7), Freedom::kAnyInput);
      args_.dt_bias = input(kF32, make_normal(biases(), c_.seed + 8), wild);
    }
    if (c_.initial) {
      args_.initial = input(c_.state, make_normal(states(), c_.seed + 9), Freedom::kPool);
    }
    if (c_.d_final) {
      args_.d_final = input(c_.state, make_normal(states(), c_.seed + 10), Freedom::kPool);
    }
  }
  void give_outputs() {
    output(0, "dq", keys(), Freedom::kOutput, &args_.dq);
    output(1, "dk", keys(), Freedom::kOutput, &args_.dk);
    output(2, "dv", values(), Freedom::kOutput, &args_.dv);
    const Freedom wild = gate_freedom(Freedom::kAnyOutput, Freedom::kOutput);
    if (gated()) output(3, "dgate", gates(), wild, &args_.dgate);
    if (args_.beta.data != nullptr) {
      output(4, "dbeta", heads(), Freedom::kAnyOutput, &args_.dbeta);
    }
    if (args_.A_log.data != nullptr) {
      output(5, "dA_log", {c_.HV}, Freedom::kAnyOutput, &args_.dA_log);
      output(6, "ddt_bias", biases(), wild, &args_.ddt_bias);
    }
    output(7, "dinitial", states(), Freedom::kPool, &args_.dinitial);
  }

  const BackwardConfig& c_;
  sluice_dtype gradient_;
  Random random_;
  sluice_chunk_backward_args args_{};
  std::deque<FreeTensor> tensors_;
  std::vector<std::pair<std::string, const FreeTensor*>> outputs_;
};

}  // namespace

std::vector<int64_t> BackwardConfig::offsets() const {
  if (!packed()) return {};
  std::vector<int64_t> cu = {0};
  for (const int64_t length : lengths) cu.push_back(cu.back() + length);
  return cu;
}
int64_t BackwardConfig::sequences() const {
  return packed() ? static_cast<int64_t>(lengths.size()) : B;
}

BackwardResult run_backward(const BackwardConfig& config, sluice_implementation implementation,
                            std::optional<sluice_dtype> gradient, int workspace_fill) {
  return BackwardCall(config, implementation, gradient.value_or(config.gradient))
      .run(workspace_fill);
}

namespace {

/// What tensor cores may err by: the caps of the forward pass, docs/math.md 7, twice as much in a
/// head or a window.
Tolerance tile_tolerance(const BackwardConfig& c, const std::string& name, const Array& x) {
  const bool is_state = name == "dinitial";
  const double whole = same_dtype(c.io, kBF16) ? .005 : is_state ? .0007 : .0008;
  // NUM: gradients of gates are sums of terms of both signs over tokens, which cancel: as many
  // times as much as float32 has for its sums, 10 to 2.
  const bool sums = name == "dgate" || name == "dA_log" || name == "ddt_bias";
  const double bound = (sums ? 5 : 1) * whole, few = 2 * bound;
  return {x.size() < 256 ? few : bound, few, few};
}

}  // namespace

Verdict judge_backward(const BackwardConfig& c, const BackwardResult& found,
                       const BackwardResult& truth) {
  if (found.code != SLUICE_OK) return {false, found.message};
  if (truth.code != SLUICE_OK || found.gradients.size() != truth.gradients.size()) {
    return {false, "truth: " + truth.message};
  }
  Verdict verdict{found.damage.empty(), found.damage};
  // NUM: float32 arithmetic, and one rounding of what is stored. Correlated keys amplify as in
  // math.md 7.
  const bool hard = c.keys == KeyProfile::kCos75 || c.keys == KeyProfile::kCos90;
  // CUDA sums a chunk's gates in one float32, of which -80 and -128 leave the small ones few
  // digits.
  const bool coarse = found.kernel.starts_with("cuda.") &&
                      (c.gates == GateProfile::kResets || c.gates == GateProfile::kMinusInfinity);
  const bool tiles = found.kernel.starts_with("cuda.chunk_backward.sm_90");
  const double arithmetic = hard || coarse ? 1e-4 : 1e-5;
  const double unit = same_dtype(c.gradient, kBF16)  ? 0x1p-9
                      : same_dtype(c.gradient, kF16) ? 0x1p-12
                                                     : 0.0;
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const auto& [name, x] = found.gradients[i];
    const Array& ref = truth.gradients[i].second;
    const bool tokens = x.shape.size() == 4 && name != "dinitial";
    if (x.size() == 0 || (tokens && c.packed() && c.offsets().back() == 0)) continue;
    const Comparison comparison = tokens ? compare_tokens(view_of(x), view_of(ref), c.offsets())
                                         : compare_whole(view_of(x), view_of(ref));
    const Tolerance limits = tiles ? tile_tolerance(c, name, x)
                                   : gradient_tolerance(name.substr(1), x.size(), arithmetic, unit);
    const Verdict part = judge(name, comparison, limits);
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  }
  return verdict;
}

}  // namespace sluice::check
