// Describes a call to the one-launch prefill kernel: one POD, passed as a __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_PREFILL_PARAMS_H_
#define SLUICE_CUDA_DEVICE_PREFILL_PARAMS_H_

#include <cuda.h>

#include <cstdint>

#include "cuda/device/segments.hpp"
#include "cuda/device/views.h"

namespace sluice::cuda::device {

/// Key-wise gates, and what kernels of these need to know besides.
struct KeyGates {
  TokenRows gate;  ///< [B,T,HV,K]; null: gates are scalars
  GateForm form;
  bool delta;        ///< the gated delta rule rather than linear attention
  float* peaks;      ///< sums over a chunk's tokens of the largest log gate, by record and head
  uint8_t* records;  ///< of chunks and heads, see chunk_forward::KeyRecord
};

/// What a launch ahead leaves of tokens, where q and k go through the norm, gates are raw or strengths
/// are logits; a head's lie next to each other.
struct PreparedTokens {
  float* norms;    ///< [2,H,B T]: inverse norms of k, then of q; null: there is no norm
  float* numbers;  ///< [2,HV,B T]: log gates, then write strengths; null: they are as given
  SLUICE_HOST_DEVICE bool exists() const { return norms != nullptr || numbers != nullptr; }
};

/// Arguments of the one-launch kernel. BOUND: T < 2^31 - 64 and N * HV < 2^30, as
/// check_one_launch_sizes() in chunk_forward/one_launch.cc has it.
struct PrefillParams {
  CUtensorMap q, k, v;  ///< boxes of 64 tokens x the columns of a work item
  CUtensorMap o;        ///< boxes of 64 tokens x 64 columns
  void* o_data;         ///< [B,T,HV,V]: the last, partial chunk of a sequence is stored by hand
  int64_t o_batch_stride, o_token_stride, o_head_stride;  ///< elements
  TokenScalar gate, beta;
  HeadScalar A_log, dt_bias;
  IndexVector cu_seqlens;  ///< [N+1]; null: sequence n is batch entry n
  StatePool initial, final, checkpoints;
  IndexVector read_slots, write_slots;  ///< [N]; null read_slots: slot n; null write_slots: read's
  const uint8_t* has_initial_state;     ///< [N], may be null
  int64_t has_initial_stride;
  IndexVector checkpoint_slots;  ///< [N,M]; stride is that of n
  int64_t checkpoint_columns, checkpoint_column_stride, checkpoint_chunks;
  int64_t pad_below;
  /// Slots of each pool from pad_below on: all others are padding. The largest number where there
  /// is no `initial`. PERF beside pad_below, with which they are read: parameters are cold at first.
  uint64_t initial_span, final_span, checkpoint_span;
  bool state_is_vk;  ///< inner order of all states: [V,K] in place of [K,V]
  bool head_map_cyclic;
  GateForm gate_form;
  BetaForm beta_form;
  float scale, beta_factor, l2norm_eps;
  int32_t N, T, H, HV, r, K, V;
  bool linear;         ///< linear attention: no beta, no delta term
  int32_t sum_chunks;  ///< of linear attention: gates are sums over 1 or 2 chunks; 0: single ones
  SegmentTables segments;  ///< null header: sequences are whole, in order, and dealt round robin
  KeyGates key;
  PreparedTokens prepared;
  /// Tickets of this launch, where there is no header.
  uint32_t first_ticket = 0, end_ticket = ~uint32_t{0};

  SLUICE_HOST_DEVICE bool has_key_gates() const { return key.gate.data != nullptr; }
  /// Tokens of all batch entries.
  SLUICE_HOST_DEVICE int64_t token_rows() const {
    return cu_seqlens.data != nullptr ? T : int64_t{N} * T;
  }
  /// Whether horizons will ask for peaks.
  SLUICE_HOST_DEVICE bool may_forget_keys() const {
    return segments.cut.may_forget && segments.cut.rule != CutRule::kWhole;
  }
};

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_PREFILL_PARAMS_H_
