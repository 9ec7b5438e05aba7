// Describes a call to the kernels of chunk_backward: one POD for all, a __grid_constant__, and what
// key-wise gates add to it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_PARAMS_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_PARAMS_H_

#include "cuda/device/stage_params.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/segments.h"

namespace sluice::cuda::backward {

using device::BetaForm, device::BoundedPool, device::GateForm, device::HeadScalar;
using device::ChunkStates, device::StageParams;
using device::Number, device::TokenRows;

/// A float32 number per value head that is written; data may be null.
struct HeadOutput {
  void* data;
  int64_t stride;
  Number number;
};

/// [B,T,HV/r,r] of any strides as [B,T,HV]; head_stride: within a group of r.
struct HeadRows : TokenRows {
  int64_t group_stride, r;
};

/// Views that a call does not have are null. What is [B,T,HV,..] float32 lies in the workspace.
struct BackwardParams {
  /// The forward pass as stages of 64 tokens: q and k normalised, values = v, gate = g (clamped
  /// logarithms), beta; and what the stages leave: A_inverse, w, v_new (all null with simple GLA),
  /// h.
  StageParams stage;
  TokenRows d_o;
  TokenRows raw_q, raw_k;       ///< as given
  TokenRows raw_v, raw_d_o;     ///< likewise, where prepare() copies them
  HeadRows raw_gate, raw_beta;  ///< [B,T,HV], as given
  HeadScalar A_log, dt_bias;
  BoundedPool d_final;  ///< [N,HV,K,V]

  TokenRows q_normal, k_normal;  ///< [B,T,H,K]: where prepare() puts them; null: as given
  TokenRows v_copy, d_o_copy;    ///< [B,T,HV,V]: likewise
  TokenRows norms;               ///< [B,T,2 H]: one over the norms of q's heads, then of k's
  TokenRows g, beta;             ///< [B,T,HV]: likewise
  TokenRows dN;                  ///< gradients of v_new, with simple GLA of v
  TokenRows Y;                   ///< (I + A)^-T dN
  ChunkStates dh;                ///< gradients of the states that leave the chunks, as stage.h
  // By tensor cores e = v_new is what the delta rule writes before its strength, diag(beta) e.
  TokenRows B;  ///< [B,T,HV,64]: e = R - B diag(beta) R of R = v - diag(exp G) k S
  /// [B,T,HV,V]: dv in io, where the copy engine can take it; may be dv. Of the chain, strengths as
  /// ValueStrength has them.
  TokenRows dv_tile;
  /// Of float16 by tensor cores: the largest |d_o| of each chunk, d_final's with the first of a
  /// sequence, [chunks,HV]; what a sequence's gradients are multiplied by inside, [N,HV].
  float *maxima, *scales;
  TokenRows dq_parts, dk_parts;  ///< [B,T,HV,K], of normalised q and k, by value head
  TokenRows dg;                  ///< [B,T,HV]: by the clamped logarithm
  /// By tensor cores, in its place: what a chunk's tokens add to ddt_bias and dA_log, [chunks,HV,2].
  float* chunk_sums;

  TokenRows dq, dk;  ///< [B,T,H,K] out
  TokenRows dv;      ///< [B,T,HV,V] out
  /// By tensor cores: items of gradients that have been dealt out. [chunks,HV], in front of that:
  /// blocks of 64 columns of S with e, and of D' with dv, that the chains have left in memory; null
  /// where gradients wait for the end of the chains.
  uint32_t *dealt, *ready;
  HeadRows dgate, dbeta;  ///< [B,T,HV] out
  HeadOutput dA_log, ddt_bias;
  BoundedPool dinitial;
  GateForm gate_form;
  BetaForm beta_form;
  float beta_factor, l2norm_eps;
  bool delta_rule, has_norm;
  SegmentCut cut;  ///< by tensor cores, of the gated delta rule
  Window window;   ///< likewise
};

/// The first chunk slot of a launch's window. 0, if there are no windows.
SLUICE_HOST_DEVICE int64_t first_slot(const BackwardParams& p) { return p.window.first / kTokens; }
/// Chunk slots that a window may have, of all windows the same: places for states.
SLUICE_HOST_DEVICE int64_t window_slots(const BackwardParams& p) {
  const StageParams& s = p.stage;
  return p.window.end / kTokens - first_slot(p) + (s.cu_seqlens.data != nullptr ? s.N : int64_t{0});
}
/// Chunk slots of a launch from first_slot() on.
SLUICE_HOST_DEVICE int64_t slot_count(const BackwardParams& p) {
  const int64_t all = device::chunk_slots(p.stage);
  if (!p.window.exists()) return all;
  const int64_t left = all - first_slot(p), own = window_slots(p);
  return own < left ? own : left;
}

/// What there is to prepare of a token, for a warp each: rows of q, k, v and d_o that go elsewhere, and
/// the gates of all heads.
SLUICE_HOST_DEVICE int64_t prepare_units(const BackwardParams& p) {
  const int64_t keys = (p.q_normal.data != nullptr) + (p.k_normal.data != nullptr),
                values = (p.v_copy.data != nullptr) + (p.d_o_copy.data != nullptr);
  return keys * p.stage.H + values * p.stage.HV + 1;
}
/// Tokens that a launch prepares, of all batch entries or of a window.
SLUICE_HOST_DEVICE int64_t prepared_tokens(const BackwardParams& p) {
  const StageParams& s = p.stage;
  const bool packed = s.cu_seqlens.data != nullptr;
  if (!p.window.exists()) return packed ? s.T : s.N * s.T;
  const int64_t left = s.T - p.window.first, own = window_rows(p.window, packed);
  return own < left ? own : left;
}

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

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_PARAMS_H_
