// Declares chunk_backward on the CPU: gradients of chunk_forward in float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_CHUNK_BACKWARD_HPP_
#define SLUICE_CPU_KERNELS_CHUNK_BACKWARD_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/backend.hpp"
#include "core/problem.hpp"
#include "cpu/kernels/size_limits.hpp"
#include "sluice/status.hpp"

namespace sluice::cpu {

/// Tokens of a chunk. A multiple of kBackwardColumns.
constexpr int64_t kBackwardChunk = 64;
/// Rows of scratch matrices are padded to this many floats, a multiple of every tile's width.
constexpr int64_t kBackwardColumns = 32;

/// Scratch of one worker, in floats: matrices named as in docs/math.md (17), their rows padded to
/// the strides below; "t" marks transposes.
struct BackwardScratch {
  int64_t K_stride, V_stride;
  int64_t k, q, k_t, dq, dk;                    ///< by K
  int64_t R, N, N_t, KS, d_o, dN, Y, dR, rows;  ///< by V; rows: of many uses
  int64_t kk, qk, A, L, P, X, W;                ///< by tokens
  int64_t S, D, state_t, d_state_t;             ///< states
  int64_t by_token;                             ///< kTokenRows rows of kBackwardChunk floats
  int64_t states;                               ///< S of each chunk
  int64_t state_size, size;

  static constexpr int64_t kTokenRows = 12;

  explicit BackwardScratch(const core::DeltaRuleProblem& p) noexcept
      : K_stride(round_up(p.K, kBackwardColumns)), V_stride(round_up(p.V, kBackwardColumns)) {
    constexpr int64_t C = kBackwardChunk;
    int64_t used = 0;
    const auto take = [&used](int64_t count) {
      const int64_t at = used;
      used += round_up(count, kFloatsPerLine);
      return at;
    };
    state_size = K_stride * V_stride;
    for (int64_t* at : {&k, &q, &k_t, &dq, &dk}) *at = take(C * K_stride);
    for (int64_t* at : {&R, &N, &N_t, &KS, &d_o, &dN, &Y, &dR, &rows}) {
      *at = take(C * std::max(K_stride, V_stride));
    }
    for (int64_t* at : {&kk, &qk, &A, &L, &P, &X, &W}) *at = take(C * C);
    for (int64_t* at : {&S, &D, &state_t, &d_state_t}) *at = take(state_size);
    by_token = take(kTokenRows * C);
    states = take(core::chunk_count(p.rows.T, C) * state_size);
    size = used;
  }
};

/// Gradients of q and k by value head, [B T, HV, K] float32 each, where value heads share key
/// heads; sums for A_log and dt_bias, [N, HV] each; with key-wise gates [N, HV, K] for dt_bias.
struct BackwardPartials {
  float *dq = nullptr, *dk = nullptr;
  double *dA_log = nullptr, *ddt_bias = nullptr;
};

/// Scratch of one worker with key-wise gates, likewise.
struct KeyBackwardScratch {
  int64_t K_stride, V_stride;
  int64_t q, k, gate, g, alpha, bias, dq, dk, dg, ddt_bias;  ///< by K; ddt_bias: doubles
  int64_t v, d_o, error, x;                                  ///< by V
  int64_t S, D;                                              ///< states
  int64_t states, starts;  ///< before the tokens of a segment, before the segments
  int64_t segment;         ///< tokens
  int64_t state_size, size;

  explicit KeyBackwardScratch(const core::DeltaRuleProblem& p) noexcept
      : K_stride(round_up(p.K, kBackwardColumns)), V_stride(round_up(p.V, kBackwardColumns)) {
    size = 0;
    const auto take = [this](int64_t count) {
      const int64_t at = size;
      size += round_up(count, kFloatsPerLine);
      return at;
    };
    state_size = p.K * V_stride;
    segment = 1;
    while (segment * segment < p.rows.T) ++segment;
    for (int64_t* at : {&q, &k, &gate, &g, &alpha, &bias, &dq, &dk, &dg}) *at = take(K_stride);
    ddt_bias = take(2 * K_stride);
    for (int64_t* at : {&v, &d_o, &error, &x}) *at = take(V_stride);
    S = take(state_size), D = take(state_size);
    states = take(segment * state_size);
    starts = take(core::chunk_count(p.rows.T, segment) * state_size);
  }
};

/// One sequence and value head.
template <class Scratch>
struct BackwardHeadItem {
  const core::ChunkBackwardProblem& problem;
  const Scratch& layout;
  float* scratch;
  const BackwardPartials& partials;
  int64_t n, head;
};
using BackwardItem = BackwardHeadItem<BackwardScratch>;
using KeyBackwardItem = BackwardHeadItem<KeyBackwardScratch>;

/// Some rows of one batch entry and key head, whose value heads' partials are to be summed.
struct KeyRowsItem {
  const core::ChunkBackwardProblem& problem;
  const BackwardPartials& partials;
  int64_t batch, begin, end, key_head;
};

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_CHUNK_BACKWARD_HPP_
