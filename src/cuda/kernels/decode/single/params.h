// Describes one token of every sequence on whole heads to the kernels of such steps and layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_PARAMS_H_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_PARAMS_H_

#include "cuda/device/views.h"
#include "cuda/kernels/decode/config.h"

namespace sluice::cuda::decode {

using device::BetaForm, device::GateForm, device::Number;

inline constexpr int kSingleSize = 128;  ///< K and V

// PERF all strides are unsigned 32-bit numbers of bytes, so that an address is one instruction a
// dimension, and the parameters a fourth of DecodeParams: they are memory, cold at first. The host
// checks.

/// Rows of q, k, v, o: [N,heads,128] of one 16-bit dtype, 16-byte aligned.
struct SingleRows {
  char* data;
  uint32_t sequence_bytes, head_bytes;
};

/// A scalar per sequence and value head, which is (group, member) of [H,r].
struct SingleScalar {
  const char* data;  ///< may be null
  uint32_t sequence_bytes, group_bytes, member_bytes;
  Number number;
};

/// A scalar per value head; null unless gates are raw.
struct SingleHeadScalar {
  const char* data;
  uint32_t head_bytes;
  Number number;
};

/// A slot per sequence.
struct SingleSlots {
  const char* data;  ///< null: sequence n has slot n
  uint32_t sequence_bytes;
  bool is_64bit;
};

/// [slots,HV,128,128], of [K,V] or [V,K].
struct SinglePool {
  char* data;
  int32_t slots;  ///< at least one
  uint32_t slot_bytes;
};

/// What steps and layers have in common.
struct SingleCommon {
  SinglePool initial, final;  ///< where one is not given, it is the other one, without effect
  SingleSlots read_slots, write_slots;
  int32_t pad_below;
  uint32_t r, H;
  bool head_map_cyclic;
  bool early;      ///< SinglePlan
  bool keeps;      ///< SinglePlan, where states are replaced where they are
  uint32_t heads;  ///< sequences times value heads
  bool l2norm, delta_rule;
  bool has_initial, has_final;
  SingleRows o;
  SingleScalar gate, beta;
  SingleHeadScalar A_log, dt_bias;
  const uint8_t* has_initial_state;  ///< [N], may be null
  uint32_t has_initial_stride;
  GateForm gate_form;
  BetaForm beta_form;
  float scale, beta_factor, l2norm_eps;
};

/// Arguments of the kernel of steps.
struct SingleParams : SingleCommon {
  SingleRows k, q, v;
  uint32_t ctas;  ///< SinglePlan
};

/// A gate per sequence, value head and row of the state: neighbours along rows.
struct SingleKeyRows {
  const char* data;  ///< may be null
  uint32_t sequence_bytes, head_bytes;
  Number number;
};

/// Arguments of the kernel of steps with a gate for each row. SingleCommon has none then.
struct SingleKeyParams : SingleParams {
  static constexpr GateForm gate_form = GateForm::kNone;
  SingleKeyRows key_gate;  ///< [N,HV,128]
  SingleKeyRows key_bias;  ///< dt_bias [HV,128]
  GateForm key_form;
};

/// Arguments of a step whose tokens are packed: row i of tokens and gates is entry i of a batch, and
/// sequence n has the token of row offsets[n], or none where the next offset is the same.
template <class Params>
struct SinglePacked : Params {
  SingleSlots offsets;  ///< N + 1
  uint32_t tokens;      ///< at least one
};

/// One of q, k, v of a layer, ahead of its convolution.
struct SingleConvPart {
  SingleRows x;           ///< [N,H,C], C = K, K, r V, of pairs: addresses are multiples of 4 bytes
  const char* weight;     ///< [D,4], 16-byte aligned
  char *initial, *final;  ///< states, of pairs as inputs are
};

/// Arguments of the kernel of layers: conv_pairs.cuh's kind of convolution, without a bias.
struct SingleLayerParams : SingleCommon {
  static constexpr GateForm gate_form = GateForm::kRaw;
  static constexpr BetaForm beta_form = BetaForm::kLogit;
  static constexpr bool l2norm = true, delta_rule = true, has_initial = true, has_final = true;
  SingleConvPart part[3];
  uint32_t initial_slot_bytes, final_slot_bytes;  ///< of convolution states
  uint32_t initial_step, final_step;              ///< bytes from one word of a pair to the next
  uint32_t channel_bytes;
  int32_t L;
  bool columns_inside;                   ///< ConvParams::columns_inside
  bool silu, round_input, round_normed;  ///< NormParams
  SingleRows z, out;                     ///< [N,HV/r,r,128], 8-byte aligned; head: that of groups
  uint32_t z_member_bytes, out_member_bytes;
  const char* norm_weight;  ///< [128], neighbours
  Number norm_weight_number;
  float eps;
};

/// Arguments of the kernel of layers with a gate for each row. SingleCommon has none then.
struct SingleKeyLayerParams : SingleLayerParams {
  static constexpr GateForm gate_form = GateForm::kNone;
  SingleKeyRows key_gate;  ///< [N,HV,128]
  SingleKeyRows key_bias;  ///< dt_bias [HV,128]
  GateForm key_form;
};

/// How a launch goes about its heads.
enum class SingleCut : int32_t {
  kNarrow,  ///< tiles of a warp each
  kWide,    ///< whole heads, halves of float32
  kMany,    ///< kWide, more CTAs a multiprocessor where states have 16 bits
  kStream,  ///< whole heads, one after the other, the next ones on their way: stream.cuh
  kLayer,   ///< whole heads of a layer: layer.cuh
};

/// What an instance is made for.
struct SingleKind {
  Number state;   ///< of both pools
  Number tokens;  ///< of q, k, v, o; 16 bits
  SingleCut cut;
  bool key_gates;  ///< a gate for each row of the state
  bool vk;         ///< states are [V,K]: kNarrow, of 16 bits kStream too
  bool packed;     ///< tokens are packed: [V,K] and kNarrow alone
};

/// Whether there are instances for states and tokens of these types.
constexpr bool has_single(Number state, Number tokens) noexcept {
  return tokens != Number::kFloat32 && (state == Number::kFloat32 || state == tokens);
}

/// A compiled kernel and how to launch it.
struct SingleInstance {
  /// Takes one SingleParams or SingleKeyParams, or SinglePacked of it; of kLayer SingleLayerParams or
  /// SingleKeyLayerParams.
  const void* kernel;
  uint32_t ctas_of_head, threads, shared_bytes;
};

/// A key head's value heads that a layer takes at most: a cluster.
inline constexpr int kMaxSingleHeads = kMaxClusterCtas;

/// CTAs of a multiprocessor that its registers, of kStream its shared memory, hold.
constexpr int single_resident(SingleCut cut, bool is_float32) noexcept {
  if (cut == SingleCut::kNarrow) return 1;
  if (cut == SingleCut::kStream) return is_float32 ? 1 : 2;
  if (cut == SingleCut::kLayer) return is_float32 ? 2 : 3;
  if (is_float32) return 4;
  return cut == SingleCut::kMany ? 3 : 2;
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_PARAMS_H_
