// Declares decode by replay on the CPU: the arithmetic of one value head.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_REPLAY_HEAD_HPP_
#define SLUICE_CPU_KERNELS_REPLAY_HEAD_HPP_

#include <cstdint>

#include "sluice/sluice.h"

namespace sluice::cpu {

/// Entries of a replay buffer and tokens of a call, at most.
constexpr int64_t kMaxReplayEntries = 16, kMaxReplayTokens = 8;

/// One sequence and value head. With A_i the product of the decays after entry i up to a token,
///   S = A_0 S0 + sum_i A_i k_i delta_i^T,  o = alpha S^T q + (k.q) delta,
///   delta = beta (v - alpha S^T k) (v without the delta rule).
/// All rows are dense and float32; q is scaled and, like k, normalised.
struct ReplayHead {
  int64_t K = 0, V = 0;
  int64_t tokens = 0, live = 0;
  const float *q = nullptr, *k = nullptr;         ///< [tokens,K]
  const float* v = nullptr;                       ///< [tokens,V]
  const float *alpha = nullptr, *beta = nullptr;  ///< [tokens]
  /// Entries: the live ones first; the tokens' ones are filled in, rounded as they are stored.
  float *keys = nullptr, *deltas = nullptr;  ///< [live + tokens,K] and [live + tokens,V]
  float* decays = nullptr;                   ///< [live + tokens]
  sluice_dtype key_dtype{}, delta_dtype{};
  float* o = nullptr;                          ///< [tokens,V]
  float *with_k = nullptr, *with_q = nullptr;  ///< scratch, [tokens,V]
  float* row = nullptr;                        ///< scratch, max(K, V)
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_state_layout layout = SLUICE_STATE_KV;
  const void* state = nullptr;  ///< K * V elements of S0; null: zeros
  void* fold = nullptr;         ///< where S before the tokens goes, may be `state`; null: nowhere
  sluice_dtype state_dtype{};
};

/// On the instruction set in use.
void run_replay_head(const ReplayHead& head) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_REPLAY_HEAD_HPP_
