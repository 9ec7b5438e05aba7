// Makes a call of one stage in which everything that sluice.h leaves open can be set: one config,
// one seed, the same inputs for whoever runs it. Outputs start as NaN.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CUDA_STAGE_SCENE_HPP_
#define SLUICE_TESTS_CUDA_STAGE_SCENE_HPP_

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "check/generate.hpp"
#include "check/tensors.hpp"

namespace sluice::check {

struct StageConfig {
  std::string name;
  sluice_stage stage = SLUICE_STAGE_CHUNK_O;
  uint64_t seed = 1;
  int64_t B = 1, T = 150, H = 1, HV = 2, K = 64, V = 64, C = 64;
  bool default_chunk = false;         ///< chunk_size 0, which C is
  std::vector<int64_t> lengths = {};  ///< packed, with three rows past the last; B and T follow
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_dtype io = kBF16, gate = kF32, beta = kF32, A = kF32, A_inverse = kBF16, state = kF32;
  sluice_dtype h = kBF16, index = kI32;
  Placement placement = Placement::kDense;  ///< of token rows
  GateProfile gates = GateProfile::kFlashQla;
  bool summed = true;                              ///< g_cumsum is given, else gate
  bool key_gates = false;                          ///< [B,T,HV,K]
  double growth = 0;                               ///< added to every gate
  sluice_gate_space gate_space = SLUICE_GATE_LOG;  ///< of chunk_cumsum; bounded ones: by -5, alone
  bool has_beta = true, with_h = true, has_initial = true, slots = false;
  bool with_inverse = false;       ///< solve_wy writes A_inverse too
  int64_t h_missing = 0;           ///< packed: chunks that h lacks, and one
  bool ones = false;               ///< A is the strict triangle of ones
  const Array* inverse = nullptr;  ///< what wy_fast reads as A_inverse, else random numbers
  sluice_state_layout layout = SLUICE_STATE_KV;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_direction direction = SLUICE_DIRECTION_FORWARD;
  sluice_triangle triangle = SLUICE_TRIANGLE_LOWER;
  sluice_matrices matrices = SLUICE_MATRICES_CHUNKS;

  bool packed() const { return !lengths.empty(); }
  int64_t sequences() const { return packed() ? static_cast<int64_t>(lengths.size()) : B; }
  int64_t rows() const;    ///< T of the tensors
  int64_t chunks() const;  ///< that h has room for: one more than there are, less h_missing
};

inline void PrintTo(const StageConfig& config, std::ostream* out) { *out << config.name; }

struct StageResult {
  int code = SLUICE_OK;
  std::string message, kernel;
  std::vector<std::pair<std::string, Array>> outputs;  ///< by name; NaN where nothing was written
  std::string damage;  ///< what was written that may not be; empty = nothing
};

/// Relative error of what is computed with operands of `io` and stored in `out`. NUM: a rounding
/// costs 2^-9 / sqrt(3) in bfloat16, 2^-12 / sqrt(3) in float16; operands are rounded up to thrice.
inline double bound(sluice_dtype io, sluice_dtype out) {
  const auto of = [](sluice_dtype d) {
    return same_dtype(d, kF32) ? 4e-6 : same_dtype(d, kBF16) ? 4e-3 : 5e-4;
  };
  return std::max(of(io), of(out));
}

/// Runs the stage once. `exact`: outputs have room for float32.
StageResult run_stage(const StageConfig& config, sluice_implementation implementation, bool exact);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_CUDA_STAGE_SCENE_HPP_
