// Declares what the cases of the delta rule's operators share: sizes, inputs and options. The
// options are set in one place, whatever the struct that holds them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CHECKSUMS_DELTA_HPP_
#define SLUICE_TESTS_CHECKSUMS_DELTA_HPP_

#include <string>
#include <vector>

#include "scene.hpp"

namespace sluice::checksums {

enum class Gates { kNone, kLog, kStrong, kLinear, kRaw, kKeyLog, kKeyLinear };
enum class Betas { kNone, kValue, kLogit };

struct Delta {
  DType io = kBFloat16;
  int64_t B = 1, T = 200, H = 2, HV = 4, K = 128, V = 128;
  std::vector<int64_t> lengths = {};  ///< packed sequences; T is their sum
  Gates gates = Gates::kLog;
  Betas betas = Betas::kValue;
  bool l2 = false, negative = false, cyclic = false, linear = false, scaled = false;

  [[nodiscard]] int64_t sequences() const {
    return lengths.empty() ? B : static_cast<int64_t>(lengths.size());
  }
  [[nodiscard]] bool key_wise() const {
    return gates == Gates::kKeyLog || gates == Gates::kKeyLinear;
  }
  /// Keys short enough that a state of unit keys does not grow.
  [[nodiscard]] Range keys() const { return {-128, 127, K > 128 ? -11 : K > 32 ? -10 : -9}; }
};

inline Delta packed(Delta d, const std::vector<int64_t>& lengths) {
  d.B = 1;
  d.T = sum(lengths);
  d.lengths = lengths;
  return d;
}

/// "bf16.b1.t200.h2x4.k128x128", then what differs from the defaults.
std::string name_of(const Delta& d);

TensorView gates_in(Scene& s, const Delta& d);
TensorView betas_in(Scene& s, const Delta& d);

template <class Args>
void set_options(const Delta& d, Args* args) {
  auto& a = *args;
  a.gate_space = d.gates == Gates::kRaw                                      ? GateSpace::kRaw
                 : d.gates == Gates::kLinear || d.gates == Gates::kKeyLinear ? GateSpace::kLinear
                                                                             : GateSpace::kLog;
  a.beta_space = d.betas == Betas::kLogit ? BetaSpace::kLogit : BetaSpace::kValue;
  a.eigenvalues = d.negative ? Eigenvalues::kNegative : Eigenvalues::kPositive;
  a.qk_norm = d.l2 ? QkNorm::kL2 : QkNorm::kNone;
  a.head_map = d.cyclic ? HeadMap::kCyclic : HeadMap::kBlock;
  a.rule = d.linear ? Rule::kLinearAttention : Rule::kGatedDelta;
  if (d.scaled) a.scale = 0.75;
}

/// q, k, v, gates, betas, offsets and options.
template <class Args>
void set_inputs(Scene& s, const Delta& d, Args* args) {
  auto& a = *args;
  a.q = s.in(d.io, {d.B, d.T, d.H, d.K}, d.keys());
  a.k = s.in(d.io, {d.B, d.T, d.H, d.K}, d.keys());
  a.v = s.in(d.io, {d.B, d.T, d.HV, d.V});
  if (d.gates != Gates::kNone) a.gate = gates_in(s, d);
  if (d.betas != Betas::kNone) a.beta = betas_in(s, d);
  if (d.gates == Gates::kRaw) {
    a.A_log = s.in(kFloat32, {d.HV});
    a.dt_bias = s.in(kFloat32, {d.HV});
  }
  if (!d.lengths.empty()) a.cu_seqlens = s.integers(offsets(d.lengths));
  set_options(d, args);
}

/// Where states lie.
struct States {
  DType dtype = kFloat32;
  bool initial = true, final = true, in_place = false, has_initial = false;
  bool slots = false;  ///< a pool in another order, the last sequence padding
  StateLayout layout = StateLayout::kKV;
};

std::string name_of(const States& states);
void set_states(Scene& s, const Delta& d, const States& states, StateIo* io);

}  // namespace sluice::checksums

#endif  // SLUICE_TESTS_CHECKSUMS_DELTA_HPP_
