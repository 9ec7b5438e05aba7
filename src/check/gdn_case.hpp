// Makes a Gated DeltaNet case: sizes and profiles become arrays, and arrays what a yardstick reads.
// Tests and the tool say what a case is; this makes its inputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_GDN_CASE_HPP_
#define SLUICE_CHECK_GDN_CASE_HPP_

#include <ostream>
#include <string>
#include <vector>

#include "check/generate.hpp"
#include "check/tensors.hpp"
#include "check/yardstick.hpp"
#include "core/delta_options.hpp"

namespace sluice::check {

struct GdnCase {
  std::string name;
  int64_t B = 1, T = 64, H = 1, HV = 1, K = 64, V = 64;
  /// Packed sequences (B = 1): their lengths; T may exceed the sum. Empty: B sequences of T.
  std::vector<int64_t> lengths = {};
  uint64_t seed = 1;

  KeyProfile keys = KeyProfile::kRandomUnit;
  GateProfile gates = GateProfile::kSlow;
  bool key_gates = false;  ///< [B,T,HV,K], and dt_bias [HV,K]
  BetaProfile betas = BetaProfile::kSigmoid;
  StateProfile initial = StateProfile::kRandom;
  ValueProfile values = ValueProfile::kRandom;

  sluice_dtype io = kF32, gate_dtype = kF32, state_dtype = kF32, index_dtype = kI64;
  Placement tokens = Placement::kDense;  ///< of q, k, v, o
  Placement pool = Placement::kDense;    ///< of the states
  core::DeltaOptions options = {};       ///< qk_norm L2: q and k get random lengths
  sluice_state_layout state_layout = SLUICE_STATE_KV;

  bool slots = false;     ///< a pool larger than N in shuffled order; else slot n is sequence n
  bool in_place = false;  ///< the final state replaces the initial one
  std::vector<int64_t> padded = {};        ///< sequences whose slot is -1; need slots
  std::vector<int64_t> no_initial = {};    ///< sequences with has_initial_state false
  int64_t checkpoint_every = 0;            ///< chunk_forward only; 0 = none
  sluice_split split = SLUICE_SPLIT_AUTO;  ///< and the next two: chunk_forward only
  int32_t split_value = 0;
  sluice_history history = SLUICE_HISTORY_AUTO;
  int64_t max_tokens = 0;  ///< what a packed prefill is told, true or not

  int64_t sequences() const noexcept;
  /// N+1 offsets, or empty where not packed.
  std::vector<int64_t> cu_seqlens() const;
};

/// How test frameworks print a case: by its name.
inline void PrintTo(const GdnCase& gdn_case, std::ostream* os) { *os << gdn_case.name; }

/// Inputs as the call sees them, that is rounded to their storage dtypes.
struct GdnInputs {
  Array q, k, v, gate, beta, A_log, dt_bias;
  Array initial;  ///< [N,HV,K,V], or empty
};

GdnInputs make_inputs(const GdnCase& gdn_case);

/// What a yardstick computes with: gates as logarithms, write strengths as values.
YardstickInputs yardstick_inputs_of(const GdnCase& gdn_case, const GdnInputs& inputs);
/// The yardstick on these inputs, outputs in the case's dtypes. Not for padded sequences.
YardstickOutputs yardstick_of(const GdnCase& gdn_case, const GdnInputs& inputs);

}  // namespace sluice::check

#endif  // SLUICE_CHECK_GDN_CASE_HPP_
