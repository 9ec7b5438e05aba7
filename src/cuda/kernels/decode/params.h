// Describes a step to the decode kernel for any case: one POD, passed as a __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_PARAMS_H_
#define SLUICE_CUDA_KERNELS_DECODE_PARAMS_H_

#include "cuda/device/views.h"
#include "cuda/kernels/decode/config.h"

#if defined(__CUDACC__)
#define SLUICE_DECODE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_DECODE_HOST_DEVICE
#endif

namespace sluice::cuda::decode {

using device::BetaForm, device::BoundedPool, device::GateForm, device::HeadScalar;
using device::IndexVector, device::Number, device::SlotTable;
using device::StatePool, device::StateSlots, device::StepRows, device::TokenRows;
using device::TokenScalar;

/// A vector of numbers.
struct NumberVector {
  const void* data;  ///< may be null
  int64_t stride;
  Number number;
};

/// Convolution states of the q, k and v channels: [slots,D,L] each, any strides, in elements.
struct ConvPool {
  void* data[3];  ///< null: none
  int64_t slot_stride, channel_stride, column_stride, slots;
  Number number;
};

/// The convolution ahead of the delta rule. Parts: q, k, v.
struct ConvParams {
  TokenRows x[3];          ///< [B,T,H,C], C = K, K, r V
  NumberVector weight[3];  ///< [D,W], W neighbours
  NumberVector bias[3];    ///< [D], data may be null
  ConvPool initial, final;
  IndexVector ring_position;  ///< [N], null with the shift form
  int32_t W, L;
  bool in_place;        ///< final is the memory of initial
  bool by_pairs;        ///< conv_pairs.cuh takes it: everything of two channels is whole words
  bool columns_inside;  ///< by_pairs: [slots,D,L] are neighbours in memory, else [slots,L,D]
};

/// The gated norm behind the delta rule.
struct NormParams {
  /// [B,T,H,r,V]; head_stride is that of key heads.
  TokenRows z, out;
  int64_t z_member_stride, out_member_stride;
  NumberVector weight;  ///< [V]
  float eps;
  bool silu;          ///< else sigmoid
  bool round_input;   ///< o is rounded to out's dtype first
  bool round_normed;  ///< and so is the normalised o
};

/// Arguments of the decode kernel. BOUND: N and H < 2^16, checked by selection.
struct DecodeParams {
  TokenRows q, k, v;  ///< [B,T,H,K], [B,T,HV,V]; of a layer: null
  TokenRows o;        ///< [B,T,HV,V]; of a layer: data may be null
  TokenScalar gate, beta;
  HeadScalar A_log, dt_bias;  ///< dt_bias of key-wise gates: [HV,K]
  StepRows rows;
  StateSlots state;
  int32_t H, K, V, r;
  int32_t tiles_per_head;
  Divisor by_tiles_per_head, by_tiles, by_columns, by_r;  ///< by_tiles, by_columns: of grid
  Grid grid;
  float scale, beta_factor, l2norm_eps;
  GateForm gate_form;
  BetaForm beta_form;
  bool l2norm, delta_rule, head_map_cyclic;
  bool write_last, write_per_token;  ///< which states go to `final`
  bool by_element;                   ///< states are not read and written four numbers at a time
  bool packed;                       ///< Config::kPacked
  bool prefetch;                     ///< states are asked for ahead of earlier launches' end
  bool layer;                        ///< conv and norm hold
  ConvParams conv;
  NormParams norm;
  TokenRows key_gate;  ///< Config::kKeyGates: [B,T,HV,K], and gate_form is kNone
  GateForm key_form;

  SLUICE_DECODE_HOST_DEVICE constexpr int ctas() const { return grid.ctas; }
  SLUICE_DECODE_HOST_DEVICE constexpr int tiles() const { return grid.tiles; }
  SLUICE_DECODE_HOST_DEVICE constexpr int column_bits() const { return grid.column_bits; }
  SLUICE_DECODE_HOST_DEVICE constexpr int max_tokens() const { return rows.max_tokens; }
  SLUICE_DECODE_HOST_DEVICE constexpr bool by_pairs() const { return conv.by_pairs; }
};

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_PARAMS_H_
