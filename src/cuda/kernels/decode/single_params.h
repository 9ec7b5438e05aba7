// One token of every sequence on whole heads: what single.cuh is told, and how its launch is cut
// up. SPDX-License-Identifier: Apache-2.0
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

/// [slots,HV,128,128].
struct SinglePool {
  char* data;
  int32_t slots;  ///< at least one
  uint32_t slot_bytes;
};

/// Arguments of the kernel.
struct SingleParams {
  SinglePool initial, final;  ///< where one is not given, it is the other one, without effect
  SingleSlots read_slots, write_slots;
  int32_t pad_below;
  uint32_t r, H;
  bool head_map_cyclic;
  bool prefetch, early;  ///< SinglePlan
  bool l2norm, delta_rule;
  bool has_initial, has_final;
  SingleRows k, q, v, o;
  SingleScalar gate, beta;
  SingleHeadScalar A_log, dt_bias;
  const uint8_t* has_initial_state;  ///< [N], may be null
  uint32_t has_initial_stride;
  GateForm gate_form;
  BetaForm beta_form;
  float scale, beta_factor, l2norm_eps;
};

/// How a value head is cut up.
enum class SingleCut : int32_t {
  kNarrow,  ///< tiles of a warp each
  kWide,    ///< whole heads
};

/// What an instance is made for.
struct SingleKind {
  Number state;   ///< of both pools
  Number tokens;  ///< of q, k, v, o; 16 bits
  SingleCut cut;
};

/// Whether there is such an instance: states are float32 or like tokens.
constexpr bool has_single(const SingleKind& kind) noexcept {
  return kind.tokens != Number::kFloat32 &&
         (kind.state == Number::kFloat32 || kind.state == kind.tokens);
}

/// A compiled kernel and how to launch it.
struct SingleInstance {
  const void* kernel;  ///< takes one SingleParams
  uint32_t ctas_of_head, threads, shared_bytes;
};

/// How a launch goes about its heads; bits do not depend on it.
struct SinglePlan {
  SingleCut cut;
  bool prefetch;  ///< the L2 is asked for states ahead of earlier launches' end
  bool early;     ///< the next launch may start ahead of this one's requests
};

/// PERF all of it measured, docs/kernels/decode.md: rows of 256 bytes a tile are what memory likes
/// best; with few heads, warps of their own reach all multiprocessors and wait for nobody. Asking
/// ahead pays but where float32 states fill the GPU once or twice; there, and with more of them,
/// the next launch's CTAs had better not take places and bandwidth yet.
/// @param heads sequences times value heads
constexpr SinglePlan plan_single(int64_t heads, Number state, int processors) noexcept {
  const bool is_16bit = state != Number::kFloat32, resident = heads <= 2 * int64_t{processors};
  return {2 * heads <= processors ? SingleCut::kNarrow : SingleCut::kWide,
          is_16bit || resident || heads > 8 * int64_t{processors}, is_16bit || resident};
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_PARAMS_H_
