// Makes one call of chunk_backward from a configuration, with everything that it may not touch
// poisoned.
// SPDX-License-Identifier: Apache-2.0
#include "parity/backward_call.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "parity/draw.hpp"

namespace sluice::check {
namespace {

/// Shapes of a configuration's tensors, and what is in them before it is stored.
class BackwardDraw {
 public:
  explicit BackwardDraw(const BackwardConfig& c) : c_(c) {}

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
  GdnInputs inputs() const {
    // Raw q and k of a norm have lengths far from 1.
    const double length = c_.qk_norm == SLUICE_QK_NORM_L2 ? 3.0 : 1.0;
    const auto scaled = [&](Array a) {
      for (double& x : a.values) x *= length;
      return a;
    };
    GdnInputs in;
    in.q = scaled(make_keys(KeyProfile::kRandomUnit, keys(), c_.seed + 1));
    in.k = scaled(make_keys(c_.keys, keys(), c_.seed + 2));
    in.v = make_normal(values(), c_.seed + 3);
    if (c_.not_a_number >= 0) in.v(0, c_.not_a_number, 0, 0) = std::nan("");
    if (gated()) in.gate = gate_values();
    if (delta() && c_.beta) {
      in.beta = c_.beta_space == SLUICE_BETA_LOGIT ? make_normal(heads(), c_.seed + 6)
                                                   : make_betas(c_.betas, heads(), c_.seed + 6);
    }
    if (c_.gate_space >= SLUICE_GATE_RAW && c_.has_gate_parameters) {
      in.A_log = make_normal({c_.HV}, c_.seed + 7), in.dt_bias = make_normal(biases(), c_.seed + 8);
    }
    if (c_.initial) in.initial = make_normal(states(), c_.seed + 9);
    return in;
  }
  ResultGradients results() const {
    ResultGradients results{make_normal(values(), c_.seed + 4),
                            c_.d_final ? make_normal(states(), c_.seed + 10) : Array()};
    for (Array* a : {&results.d_o, &results.d_final}) {
      for (double& x : a->values) x *= c_.size;
    }
    return results;
  }

 private:
  Array gate_values() const {
    if (c_.gate_space >= SLUICE_GATE_RAW) return make_normal(gates(), c_.seed + 5);
    Array g = c_.key_gates ? make_key_gates(c_.gates, gates(), c_.seed + 5)
                           : make_gates(c_.gates, gates(), c_.seed + 5);
    for (double& x : g.values) x = c_.gate_space == SLUICE_GATE_LINEAR ? std::exp(x) : x;
    return g;
  }

  const BackwardConfig& c_;
};

/// The tensors of one call.
class BackwardCall {
 public:
  BackwardCall(const BackwardConfig& c, const BackwardTensors& tensors,
               sluice_implementation implementation, sluice_dtype gradient)
      : c_(c), gradient_(gradient), random_(c.seed) {
    args_.struct_size = sizeof args_;
    args_.options.rule = c.rule, args_.options.head_map = c.head_map,
    args_.options.qk_norm = c.qk_norm;
    args_.options.gate_lower_bound = c.gate_lower_bound;
    args_.options.gate_space = c.gate_space, args_.options.beta_space = c.beta_space;
    args_.options.eigenvalues = c.eigenvalues, args_.state_layout = c.layout;
    args_.implementation = implementation;
    args_.split = c.split, args_.split_value = c.split_value;
    if (c.scale) args_.options.scale_mode = SLUICE_SCALE_VALUE, args_.options.scale = *c.scale;
    if (c.packed()) args_.cu_seqlens = offsets();
    give_inputs(tensors.in, tensors.results);
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
  Freedom freedom(Freedom wild) const {
    if (c_.wild) return wild;
    if (!c_.apart) return Freedom::kDense;
    return wild == Freedom::kInput      ? Freedom::kOutput
           : wild == Freedom::kAnyInput ? Freedom::kAnyOutput
                                        : wild;
  }
  sluice_tensor input(sluice_dtype dtype, const Array& array, Freedom wild) {
    FreeTensor& t = tensors_.emplace_back(dtype, array.shape, freedom(wild), &random_);
    t.assign(array.values);
    return t.view();
  }
  void output(int place, const char* name, const std::vector<int64_t>& shape, Freedom wild,
              sluice_tensor* to) {
    if (!c_.outputs[place]) return;
    FreeTensor& t = tensors_.emplace_back(gradient_, shape, freedom(wild), &random_);
    outputs_.emplace_back(name, &t);
    *to = t.view();
  }
  sluice_tensor offsets() {
    const std::vector<int64_t> list = c_.offsets();
    Array array({static_cast<int64_t>(list.size())});
    for (size_t i = 0; i < list.size(); ++i) array.values[i] = static_cast<double>(list[i]);
    return input(chance(&random_, 2) ? kI32 : kI64, array, Freedom::kAnyOutput);
  }

  Freedom gate_freedom(Freedom scalar, Freedom rows) const { return c_.key_gates ? rows : scalar; }

  void give_inputs(const GdnInputs& in, const ResultGradients& results) {
    args_.q = input(c_.io, in.q, Freedom::kInput);
    args_.k = input(c_.io, in.k, Freedom::kInput);
    args_.v = input(c_.io, in.v, Freedom::kInput);
    args_.d_o = input(c_.d_o, results.d_o, Freedom::kInput);
    const Freedom wild = gate_freedom(Freedom::kAnyInput, Freedom::kInput);
    const auto give = [&](sluice_tensor* to, sluice_dtype dtype, const Array& a, Freedom freedom) {
      if (!a.empty()) *to = input(dtype, a, freedom);
    };
    if (draw_.gated()) args_.gate = input(c_.gate, in.gate, wild);
    if (draw_.delta() && c_.beta) args_.beta = input(c_.gate, in.beta, Freedom::kAnyInput);
    give(&args_.A_log, kF32, in.A_log, Freedom::kAnyInput);
    give(&args_.dt_bias, kF32, in.dt_bias, wild);
    if (c_.initial) args_.initial = input(c_.state, in.initial, Freedom::kPool);
    if (c_.d_final) args_.d_final = input(c_.state, results.d_final, Freedom::kPool);
  }
  void give_outputs() {
    output(0, "dq", draw_.keys(), Freedom::kOutput, &args_.dq);
    output(1, "dk", draw_.keys(), Freedom::kOutput, &args_.dk);
    output(2, "dv", draw_.values(), Freedom::kOutput, &args_.dv);
    const Freedom wild = gate_freedom(Freedom::kAnyOutput, Freedom::kOutput);
    if (draw_.gated()) output(3, "dgate", draw_.gates(), wild, &args_.dgate);
    if (args_.beta.data != nullptr) {
      output(4, "dbeta", draw_.heads(), Freedom::kAnyOutput, &args_.dbeta);
    }
    if (args_.A_log.data != nullptr) {
      output(5, "dA_log", {c_.HV}, Freedom::kAnyOutput, &args_.dA_log);
      output(6, "ddt_bias", draw_.biases(), wild, &args_.ddt_bias);
    }
    output(7, "dinitial", draw_.states(), Freedom::kPool, &args_.dinitial);
  }

  const BackwardConfig& c_;
  BackwardDraw draw_{c_};
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

BackwardTensors draw_backward(const BackwardConfig& config) {
  const BackwardDraw draw(config);
  return {draw.inputs(), draw.results()};
}

BackwardResult run_backward(const BackwardConfig& config, sluice_implementation implementation,
                            std::optional<sluice_dtype> gradient, int workspace_fill) {
  return BackwardCall(config, draw_backward(config), implementation,
                      gradient.value_or(config.gradient))
      .run(workspace_fill);
}

BackwardResult run_backward_on(const BackwardConfig& config, const BackwardTensors& tensors,
                               sluice_implementation implementation) {
  return BackwardCall(config, tensors, implementation, config.gradient).run(0xff);
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

/// The yardstick of gradients on what a configuration draws, as stored.
InputGradients yardstick_of(const BackwardConfig& c) {
  GdnCase gdn_case;
  gdn_case.B = c.B, gdn_case.T = c.T, gdn_case.H = c.H, gdn_case.HV = c.HV, gdn_case.K = c.K;
  gdn_case.V = c.V, gdn_case.lengths = c.lengths, gdn_case.io = c.io;
  gdn_case.options.rule = c.rule, gdn_case.options.head_map = c.head_map;
  gdn_case.options.qk_norm = c.qk_norm, gdn_case.options.gate_space = c.gate_space;
  gdn_case.options.gate_lower_bound = c.gate_lower_bound;
  gdn_case.options.beta_space = c.beta_space, gdn_case.options.eigenvalues = c.eigenvalues;
  if (c.scale) gdn_case.options.scale = *c.scale;
  auto [in, results] = draw_backward(c);
  for (Array* a : {&in.q, &in.k, &in.v, &results.d_o}) *a = round_to(c.io, std::move(*a));
  for (Array* a : {&in.gate, &in.beta}) *a = round_to(c.gate, std::move(*a));
  for (Array* a : {&in.A_log, &in.dt_bias}) *a = round_to(kF32, std::move(*a));
  for (Array* a : {&in.initial, &results.d_final}) *a = round_to(c.state, std::move(*a));
  return backward_yardstick_of(gdn_case, in, results);
}

/// Where tensor cores may err by more than the cap: gradients of gates and of write strengths are
/// sums of terms that cancel, and a draw may leave next to nothing of them. Then the yardstick says
/// what can be had on it: 1.25 times its error, docs/kernels/backward.md.
Verdict judge_sums(const BackwardConfig& c, const std::string& name, const Comparison& found,
                   const Array& ref, Tolerance cap) {
  const Verdict verdict = judge(name, found, cap);
  const bool is_sum = name == "dgate" || name == "dbeta";
  if (verdict.pass || !is_sum || c.layout != SLUICE_STATE_KV) return verdict;
  const InputGradients yardstick = yardstick_of(c);
  const Array& by = name == "dgate" ? yardstick.gate : yardstick.beta;
  const Comparison limit = compare_whole(view_of(by), view_of(ref));
  cap.whole = std::max(cap.whole, 1.25 * limit.relative_l2);
  return judge(name + " by the yardstick", found, cap);
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
    const Verdict part =
        tiles ? judge_sums(c, name, comparison, ref, limits) : judge(name, comparison, limits);
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  }
  return verdict;
}

}  // namespace sluice::check
