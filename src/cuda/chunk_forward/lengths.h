// Tells how long the sequences of a prefill are, as far as the host knows.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_LENGTHS_H_
#define SLUICE_CUDA_CHUNK_FORWARD_LENGTHS_H_

#include <algorithm>

#include "core/problem.hpp"
#include "cuda/device/segments.hpp"

namespace sluice::cuda {

inline bool is_linear(const core::DeltaRuleProblem& p) noexcept {
  return p.rule == SLUICE_RULE_LINEAR_ATTENTION;
}

/// Whether states decay as a whole and nothing else multiplies them.
inline bool has_scalar_factors(const core::DeltaRuleProblem& p) noexcept {
  return is_linear(p) && !core::present(p.key_gate);
}

/// Chunks of all sequences, at most.
inline int64_t most_chunks(const core::DeltaRuleProblem& p) noexcept {
  const bool packed = core::present(p.rows.cu_seqlens);
  return packed ? p.rows.T / 64 + p.rows.N : p.rows.N * ((p.rows.T + 63) / 64);
}

/// Records of a head with key-wise gates.
inline int64_t key_records(const core::DeltaRuleProblem& p) noexcept {
  return device::key_records(p.rows.N, p.rows.T, core::present(p.rows.cu_seqlens));
}

/// Whether a launch ahead of the gated delta rule with scalar gates takes the inverse norms of q and k.
inline bool prepares_norms(const core::DeltaRuleProblem& p) noexcept {
  return p.qk_norm == SLUICE_QK_NORM_L2 && !is_linear(p) && !core::present(p.key_gate);
}
/// Whether that launch turns raw gates and logits into log gates and write strengths.
inline bool prepares_numbers(const core::DeltaRuleProblem& p) noexcept {
  if (is_linear(p) || core::present(p.key_gate)) return false;
  const bool raw = core::present(p.gate) && p.gate_space != SLUICE_GATE_LOG &&
                   p.gate_space != SLUICE_GATE_LINEAR;
  return raw || (core::present(p.beta) && p.beta_space == SLUICE_BETA_LOGIT);
}

/// Whether the longest sequence of several packed ones is known.
inline bool knows_longest(const core::DeltaRuleProblem& p) noexcept {
  return core::present(p.rows.cu_seqlens) && p.rows.N > 1 && p.rows.longest > 0;
}

/// Sequences as long as the longest, at most; all where the host does not know that.
inline int64_t long_sequences(const core::DeltaRuleProblem& p) noexcept {
  return knows_longest(p) ? std::clamp<int64_t>(p.rows.T / p.rows.longest, 1, p.rows.N) : p.rows.N;
}

/// Whether all sequences have one length, as far as numbers tell: a packed one may be shorter.
inline bool has_equal_lengths(const core::DeltaRuleProblem& p) noexcept {
  if (!core::present(p.rows.cu_seqlens) || p.rows.N == 1) return true;
  return knows_longest(p) && p.rows.longest * p.rows.N == p.rows.T;
}

/// Chunks of each sequence where lengths are equal.
inline int64_t equal_chunks(const core::DeltaRuleProblem& p) noexcept {
  return ((knows_longest(p) ? p.rows.longest : p.rows.T) + 63) / 64;
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_FORWARD_LENGTHS_H_
