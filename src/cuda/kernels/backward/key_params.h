// Describes a call to the kernels of chunk_backward with key-wise gates, and states their shapes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_KEY_PARAMS_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_KEY_PARAMS_H_

#include "cuda/kernels/backward/params.h"

namespace sluice::cuda::backward {

inline constexpr int kKeyThreads = 256;
inline constexpr int64_t kKeyMaxV = 2048;

/// Views that a call does not have are null.
struct KeyBackwardParams {
  BackwardParams all;   ///< gate_form and A_log too, but no gate, dt_bias, g, dg and dgate
  TokenRows gate;       ///< [B,T,HV,K], as given
  HeadScalar dt_bias;   ///< [HV,K]
  TokenRows dgate;      ///< [B,T,HV,K] out
  int64_t segment;      ///< tokens
  int64_t state_count;  ///< of a sequence and value head: see key_state_count()
  float* states;        ///< [N,HV,state_count,K,V]
  float* bias_parts;    ///< [N,HV,K]: sums over a sequence's tokens; null: not wanted, as the next
  float* rate_parts;    ///< [N,HV]
};

/// Tokens of a segment of T, about their root.
constexpr int64_t key_segment(int64_t T) noexcept {
  int64_t tokens = 1;
  while (tokens * tokens < T) ++tokens;
  return tokens;
}
/// States of a sequence and value head: S and D, those before a segment's tokens, those before the
/// segments.
constexpr int64_t key_state_count(int64_t T, int64_t segment) noexcept {
  return 2 + segment + (T + segment - 1) / segment;
}
/// Shared bytes: six vectors of K, four of V, two sums a warp.
constexpr int64_t key_bytes(int64_t K, int64_t V) noexcept {
  return 4 * (6 * K + 4 * V + 2 * (kKeyThreads / 32));
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_KEY_PARAMS_H_
