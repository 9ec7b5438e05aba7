// Makes one call of chunk_stage from a configuration: inputs with the statistics of a prefill,
// outputs and everything that is not to be read or written NaN and watched.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_STAGE_CALL_HPP_
#define SLUICE_TESTS_PARITY_STAGE_CALL_HPP_

#include <optional>
#include <string>
#include <vector>

#include "check/comparer.hpp"
#include "check/generate.hpp"
#include "parity/operator_call.hpp"

namespace sluice::check {

struct StageConfig {
  std::string name, kind;  ///< kind: of kStageKinds
  sluice_stage stage = SLUICE_STAGE_CHUNK_CUMSUM;
  uint64_t seed = 1;
  int64_t B = 1, T = 70, H = 1, HV = 2, K = 32, V = 32, C = 64;
  bool default_chunk = false;         ///< chunk_size 0, which C is
  std::vector<int64_t> lengths = {};  ///< packed sequences; T may exceed their sum
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_direction direction = SLUICE_DIRECTION_FORWARD;
  sluice_triangle triangle = SLUICE_TRIANGLE_LOWER;
  int matrix_rank = 0;  ///< solve_tril: 2 to 4 = batched matrices of C x C
  KeyProfile keys = KeyProfile::kSiluLike;
  GateProfile gates = GateProfile::kFlashQla;
  bool key_gates = false;                          ///< [B,T,HV,K]
  double growth = 0;                               ///< added to every gate
  sluice_gate_space gate_space = SLUICE_GATE_LOG;  ///< of chunk_cumsum; bounded ones: by -5
  bool gate_parameters = true;                     ///< A_log and dt_bias of raw gates
  bool beta = true, cumulated = true, supplied_h = true;
  bool v_new = true;  ///< and A_inverse of solve_wy: an output that may be absent
  bool initial = true, final = true;
  std::vector<int64_t> padded = {};  ///< sequences whose slot is -1
  bool slots = false;                ///< a pool in shuffled order; padded ones need it
  sluice_state_layout layout = SLUICE_STATE_KV;
  sluice_dtype io = kF32, out = kF32, gate = kF32, state = kF32, h = kF32;
  std::optional<double> scale = {};
  bool wild = false;  ///< random strides, head-first among them

  bool packed() const { return !lengths.empty(); }
  std::vector<int64_t> offsets() const;  ///< N+1 of packed rows, else empty
  int64_t sequences() const;
  int64_t chunks() const;  ///< of h's row, whole batch where packed
};

struct StageOutput {
  std::string name;
  Array values;
  sluice_dtype dtype;
};
struct StageResult {
  int code = SLUICE_OK;
  std::string message, kernel, damage;
  std::vector<StageOutput> outputs;  ///< what the stage writes, of the caller's shape
};

/// out_dtype: of all outputs but g_cumsum; default: the configuration's.
StageResult run_stage(const StageConfig& config, sluice_implementation implementation,
                      std::optional<sluice_dtype> out_dtype = {}, int workspace_fill = 0xff);

/// All outputs near those of the truth, and no damage.
Verdict judge_stage(const StageConfig& config, const StageResult& found, const StageResult& truth);

/// The configurations' stages by name, e.g. "chunk_h"; "simple_gla" is chunk_o on its own.
struct StageKind {
  const char* name;
  sluice_stage stage;
  sluice_rule rule;
  bool supplied_h;
  bool key_gates = false;
};
inline constexpr StageKind kStageKinds[] = {
    {"chunk_cumsum", SLUICE_STAGE_CHUNK_CUMSUM, SLUICE_RULE_GATED_DELTA, true},
    {"scaled_dot_kkt", SLUICE_STAGE_SCALED_DOT_KKT, SLUICE_RULE_GATED_DELTA, true},
    {"solve_tril", SLUICE_STAGE_SOLVE_TRIL, SLUICE_RULE_GATED_DELTA, true},
    {"wy_fast", SLUICE_STAGE_WY_FAST, SLUICE_RULE_GATED_DELTA, true},
    {"chunk_h", SLUICE_STAGE_CHUNK_H, SLUICE_RULE_GATED_DELTA, true},
    {"chunk_h_linear", SLUICE_STAGE_CHUNK_H, SLUICE_RULE_LINEAR_ATTENTION, true},
    {"chunk_o", SLUICE_STAGE_CHUNK_O, SLUICE_RULE_GATED_DELTA, true},
    {"simple_gla", SLUICE_STAGE_CHUNK_O, SLUICE_RULE_LINEAR_ATTENTION, false},
    {"cumsum_kkt", SLUICE_STAGE_CUMSUM_KKT, SLUICE_RULE_GATED_DELTA, true},
    {"solve_wy", SLUICE_STAGE_SOLVE_WY, SLUICE_RULE_GATED_DELTA, true},
    {"key_cumsum", SLUICE_STAGE_CHUNK_CUMSUM, SLUICE_RULE_GATED_DELTA, true, true},
    {"key_chunk_h", SLUICE_STAGE_CHUNK_H, SLUICE_RULE_GATED_DELTA, true, true},
    {"key_chunk_h_linear", SLUICE_STAGE_CHUNK_H, SLUICE_RULE_LINEAR_ATTENTION, true, true},
    {"key_scaled_dot_kkt", SLUICE_STAGE_SCALED_DOT_KKT, SLUICE_RULE_GATED_DELTA, true, true},
    {"key_wy_fast", SLUICE_STAGE_WY_FAST, SLUICE_RULE_GATED_DELTA, true, true},
    {"key_chunk_o", SLUICE_STAGE_CHUNK_O, SLUICE_RULE_GATED_DELTA, true, true},
    {"key_gla", SLUICE_STAGE_CHUNK_O, SLUICE_RULE_LINEAR_ATTENTION, false, true},
    {"key_cumsum_kkt", SLUICE_STAGE_CUMSUM_KKT, SLUICE_RULE_GATED_DELTA, true, true},
    {"key_solve_wy", SLUICE_STAGE_SOLVE_WY, SLUICE_RULE_GATED_DELTA, true, true},
};
/// Stages that have no result without a gate.
inline bool sums_gates(const StageConfig& c) {
  return c.stage == SLUICE_STAGE_CHUNK_CUMSUM || c.stage == SLUICE_STAGE_CUMSUM_KKT;
}
inline StageConfig of_kind(const StageKind& kind) {
  StageConfig c;
  c.kind = kind.name, c.stage = kind.stage, c.rule = kind.rule, c.supplied_h = kind.supplied_h;
  c.key_gates = kind.key_gates;
  return c;
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_STAGE_CALL_HPP_
