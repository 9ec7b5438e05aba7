// Lengths of a problem's sequences, as far as the choice of a split knows them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SPLIT_SIZES_H_
#define SLUICE_CUDA_SPLIT_SIZES_H_

#include "core/problem.hpp"

namespace sluice::cuda {

/// Chunks of all sequences, at most.
inline int64_t most_chunks(const core::DeltaRuleProblem& p) noexcept {
  const bool packed = core::present(p.rows.cu_seqlens);
  return packed ? p.rows.T / 64 + p.rows.N : p.rows.N * ((p.rows.T + 63) / 64);
}

inline bool is_linear(const core::DeltaRuleProblem& p) noexcept {
  return p.rule == SLUICE_RULE_LINEAR_ATTENTION;
}

/// Whether the longest sequence of several packed ones is known.
inline bool is_bounded(const core::DeltaRuleProblem& p) noexcept {
  return core::present(p.rows.cu_seqlens) && p.rows.N > 1 && p.rows.longest > 0;
}

/// Whether all sequences have one length, as far as numbers tell: a packed one may be shorter.
inline bool is_even(const core::DeltaRuleProblem& p) noexcept {
  if (!core::present(p.rows.cu_seqlens) || p.rows.N == 1) return true;
  return is_bounded(p) && p.rows.longest * p.rows.N == p.rows.T;
}

/// Chunks of a sequence of an even batch.
inline int64_t even_chunks(const core::DeltaRuleProblem& p) noexcept {
  return ((is_bounded(p) ? p.rows.longest : p.rows.T) + 63) / 64;
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SPLIT_SIZES_H_
