// Makes the calls of a sequence that is cut over ranks: its inputs, chunk_summary, state_fold, and the
// prefill of fragments from states.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_CONTEXT_CALL_HPP_
#define SLUICE_TESTS_PARITY_CONTEXT_CALL_HPP_

#include <string>
#include <vector>

#include "check/comparer.hpp"
#include "check/generate.hpp"
#include "parity/operator_call.hpp"

namespace sluice::check {

struct ContextConfig {
  std::string name;
  uint64_t seed = 1;
  std::vector<int64_t> lengths = {70};  ///< sequences, packed
  int64_t H = 1, HV = 2, K = 32, V = 32;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_qk_norm qk_norm = SLUICE_QK_NORM_NONE;
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  sluice_state_layout layout = SLUICE_STATE_KV;
  sluice_history history = SLUICE_HISTORY_AUTO;
  KeyProfile keys = KeyProfile::kSiluLike;
  GateProfile gates = GateProfile::kFlashQla;
  bool key_gates = false, initial = true;
  sluice_dtype io = kF32;

  int64_t tokens() const;
};
inline void PrintTo(const ContextConfig& config, std::ostream* out) { *out << config.name; }

/// Rows begin .. end - 1 of a sequence in packed rows.
struct Piece {
  int64_t sequence, begin, end;
};

/// The maps of pieces. Arrays are [pieces,HV,K,K], [pieces,HV,K,V] and [pieces,HV].
struct Maps {
  Array transition, addend, forgotten;
  CallOutcome outcome;
};

struct Outputs {
  Array o, final;
  CallOutcome outcome;
};

struct Gradients {
  Array dq, dv, dinitial;
  CallOutcome outcome;
};

struct Folded {
  Array entering, final;
  CallOutcome outcome;
};

/// Inputs of all sequences, and the operators on pieces of them.
class ContextInputs {
 public:
  explicit ContextInputs(const ContextConfig& config);

  Maps summary(const std::vector<Piece>& pieces, sluice_direction direction,
               sluice_implementation implementation, const std::vector<int64_t>& wanted = {}) const;
  /// A prefill of pieces from their own states [pieces,HV,K,V], or zeros where there are none.
  Outputs forward(const std::vector<Piece>& pieces, const Array& initial,
                  sluice_implementation implementation) const;
  Gradients backward(const std::vector<Piece>& pieces, const Array& initial, const Array& d_final,
                     sluice_implementation implementation) const;

  std::vector<int64_t> states_shape(int64_t count) const;
  Array initial() const { return initial_; }
  Array d_final() const { return d_final_; }
  const ContextConfig& config() const { return c_; }

 private:
  /// Rows of pieces one after the other.
  Array rows_of(const Array& all, const std::vector<Piece>& pieces) const;
  template <class Args>
  void give(const std::vector<Piece>& pieces, std::vector<TestTensor>* tensors, Args* args) const;

  ContextConfig c_;
  Array q_, k_, v_, d_o_, gate_, beta_, A_log_, dt_bias_, initial_, d_final_;
};

/// A chain of state_fold.
struct Step {
  int64_t piece, state;
};

/// state_fold of maps whose states have a config's sizes.
Folded fold(const ContextConfig& config, const Maps& maps,
            const std::vector<std::vector<Step>>& chains, const Array& initial,
            sluice_direction direction, sluice_implementation implementation);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_CONTEXT_CALL_HPP_
