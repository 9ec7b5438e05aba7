// Makes one call of chunk_backward from a configuration: inputs with the statistics of a prefill,
// outputs and everything that is not to be read or written NaN and watched.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_BACKWARD_CALL_HPP_
#define SLUICE_TESTS_PARITY_BACKWARD_CALL_HPP_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "check/backward_yardstick.hpp"
#include "check/comparer.hpp"
#include "check/generate.hpp"
#include "parity/operator_call.hpp"

namespace sluice::check {

struct BackwardConfig {
  std::string name;
  uint64_t seed = 1;
  int64_t B = 1, T = 70, H = 1, HV = 2, K = 32, V = 32;
  std::vector<int64_t> lengths = {};  ///< packed sequences; T may exceed their sum
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  double gate_lower_bound = 0;      ///< < 0, with RAW_BOUNDED
  bool has_gate_parameters = true;  ///< A_log and dt_bias of raw gates
  bool key_gates = false;           ///< [B,T,HV,K], dt_bias [HV,K]
  sluice_beta_space beta_space = SLUICE_BETA_VALUE;
  sluice_eigenvalues eigenvalues = SLUICE_EIGENVALUES_POSITIVE;
  sluice_qk_norm qk_norm = SLUICE_QK_NORM_NONE;
  sluice_state_layout layout = SLUICE_STATE_KV;
  KeyProfile keys = KeyProfile::kSiluLike;
  GateProfile gates = GateProfile::kFlashQla;
  BetaProfile betas = BetaProfile::kSigmoid;  ///< of beta as a value
  bool beta = true, initial = true, d_final = true;
  bool outputs[8] = {true, true, true, true, true, true, true, true};  ///< in the order of sluice.h
  sluice_dtype io = kF32, d_o = kF32, gate = kF32, state = kF32;
  sluice_dtype gradient = kF32;  ///< of all outputs
  std::optional<double> scale = {};
  sluice_split split = SLUICE_SPLIT_AUTO;
  int32_t split_value = 0;
  double size = 1;            ///< of the gradients given
  bool wild = false;          ///< random strides, head-first among them
  bool apart = false;         ///< likewise, but elements of inputs share no memory either
  int64_t not_a_number = -1;  ///< a token whose v is NaN in value head 0

  bool packed() const { return !lengths.empty(); }
  std::vector<int64_t> offsets() const;  ///< N+1 of packed rows, else empty
  int64_t sequences() const;
};
inline void PrintTo(const BackwardConfig& config, std::ostream* out) { *out << config.name; }

struct BackwardResult {
  int code = SLUICE_OK;
  std::string message, kernel, damage;
  std::vector<std::pair<std::string, Array>> gradients;
};

/// What a call reads: inputs and the gradients of results.
struct BackwardTensors {
  GdnInputs in;
  ResultGradients results;
};

/// The tensors that a configuration draws, not yet rounded to its dtypes.
BackwardTensors draw_backward(const BackwardConfig& config);

BackwardResult run_backward(const BackwardConfig& config, sluice_implementation implementation,
                            std::optional<sluice_dtype> gradient = {}, int workspace_fill = 0xff);

/// The same with tensors of the caller's, shaped as the configuration says.
BackwardResult run_backward_on(const BackwardConfig& config, const BackwardTensors& tensors,
                               sluice_implementation implementation);

/// All gradients near those of the truth, and no damage.
Verdict judge_backward(const BackwardConfig& config, const BackwardResult& found,
                       const BackwardResult& truth);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_BACKWARD_CALL_HPP_
