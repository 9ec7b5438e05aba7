// Makes a call of chunk_forward or recurrent_step in which everything that sluice.h leaves open can
// be set: one config, one seed, the same memory for every implementation that runs it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_DELTA_CALL_HPP_
#define SLUICE_TESTS_PARITY_DELTA_CALL_HPP_

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "check/comparer.hpp"
#include "check/generate.hpp"
#include "parity/free_tensor.hpp"

namespace sluice::check {

/// Which slot tables are given.
enum class Slots {
  kNone,      ///< sequence n has slot n
  kRead,      ///< read_slots, written too
  kSeparate,  ///< write_slots of their own
  kShared,    ///< write_slots given, the same table as read_slots
};

struct DeltaConfig {
  std::string name;
  uint64_t seed = 1;
  sluice_op op = SLUICE_OP_RECURRENT_STEP;
  int64_t B = 2, T = 3, H = 1, HV = 2, K = 32, V = 32;
  bool packed = false;
  std::vector<int64_t> lengths = {};  ///< of packed sequences; T follows
  int64_t rows_past_end = 0;          ///< of packed sequences
  int64_t most_tokens = 16;           ///< max_tokens of packed steps
  bool wild = false;                  ///< strides at random

  KeyProfile keys = KeyProfile::kRandomUnit;
  GateProfile gates = GateProfile::kSlow;
  bool key_gates = false;  ///< [B,T,HV,K]
  BetaProfile betas = BetaProfile::kSigmoid;
  sluice_dtype io = kF32, o = kF32, gate = kF32, beta = kF32, per_head = kF32;
  sluice_dtype initial = kF32, final = kF32, checkpoint = kF32, index = kI32;
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  double gate_lower_bound = 0;      ///< < 0, with RAW_BOUNDED
  bool has_gate_parameters = true;  ///< A_log and dt_bias of raw gates, where they may be absent
  sluice_beta_space beta_space = SLUICE_BETA_VALUE;
  sluice_eigenvalues eigenvalues = SLUICE_EIGENVALUES_POSITIVE;
  sluice_qk_norm qk_norm = SLUICE_QK_NORM_NONE;
  double l2norm_eps = 0.0;
  sluice_head_map head_map = SLUICE_HEAD_MAP_BLOCK;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_state_layout layout = SLUICE_STATE_KV;
  std::optional<double> scale = std::nullopt;

  bool has_initial = true, has_final = true;  ///< pools; steps without final write `initial`
  bool in_place = false;                      ///< final is the view of initial
  Slots slots = Slots::kNone;
  int64_t pad_below = 0;
  std::vector<int64_t> padded = {};         ///< sequences that are padding
  std::vector<int64_t> padded_writes = {};  ///< sequences whose write slot is padding
  std::vector<int64_t> fresh = {};          ///< sequences with has_initial_state false
  int64_t checkpoint_every = 0;
  sluice_split split = SLUICE_SPLIT_AUTO;  ///< and the next two: chunk_forward only
  int32_t split_value = 0;
  sluice_history history = SLUICE_HISTORY_AUTO;

  sluice_state_writes state_writes = SLUICE_STATE_WRITE_LAST;
  int64_t columns = 0;  ///< of slot tables; 0 = rank 1
  bool num_accepted = false;
  std::vector<int64_t> accepted = {};  ///< [N]; empty = at random

  int64_t sequences() const { return packed ? static_cast<int64_t>(lengths.size()) : B; }
  std::vector<int64_t> offsets() const;
};

inline void PrintTo(const DeltaConfig& config, std::ostream* out) { *out << config.name; }

struct DeltaResult {
  int code = SLUICE_OK;
  std::string message, kernel;
  Array o;                            ///< [B,T,HV,V]
  Array initial, final, checkpoints;  ///< whole pools
  std::string damage;                 ///< what was written that may not be; empty = nothing
};

/// Builds the call from the config and runs it once. workspace_fill: its bytes before the call.
DeltaResult run_delta(const DeltaConfig& config, sluice_implementation implementation,
                      int workspace_fill = 0xff);

/// One line each for o, states and checkpoints; passes if all do and nothing was damaged.
/// wide: the caps of correlated keys.
Verdict judge_delta(const DeltaConfig& config, const DeltaResult& found, const DeltaResult& truth,
                    bool wide = false);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_DELTA_CALL_HPP_
