// Describes calls to the kernels of the convolution and of its gradients: one POD each, passed as a
// __grid_constant__.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PARAMS_H_
#define SLUICE_CUDA_KERNELS_CONV1D_PARAMS_H_

#include "cuda/device/views.h"

namespace sluice::cuda::conv1d {

using device::HeadScalar, device::IndexVector, device::Number;

inline constexpr int kMaxWidth = 4;
inline constexpr int kThreads = 128, kWarps = kThreads / 32;

/// Of a thread of the block kernel.
inline constexpr int kThreadTokens = 8, kThreadChannels = 4;

/// x or out, [B,T,G,C]; strides in elements, any.
struct TokenChannels {
  void* data;
  int64_t batch_stride, token_stride, group_stride, channel_stride;
  Number number;
};

/// Channels first .. of D: G groups of C that have tensors of their own (a layer's q, k and v).
struct ChannelPart {
  TokenChannels x, out;
  int64_t first, C;
};

/// [slots,D,L], any strides, in elements.
struct ConvPool {
  void* data;  ///< may be null
  int64_t slots, slot_stride, channel_stride, column_stride;
  Number number;
};

/// How states lie in memory, as far as kernels make use of it.
enum class StateOrder : int32_t {
  kAny,             ///< any form and stride
  kColumnsOutside,  ///< a column of neighbouring channels is one pack: [slots,L,D] in memory
  kColumnsInside    ///< a channel's columns are neighbours: [slots,D,L]; L is 3 or 4, no ring
};

/// What a row of tokens is, for whoever comes after the convolution.
enum RowKind : uint8_t { kNobodys = 0, kLive = 1, kPadding = 2 };

/// Arguments of the convolution kernels.
struct ConvParams {
  ChannelPart part[3];
  int32_t parts;
  const void* weight;  ///< [D,W]
  int64_t weight_stride;
  Number weight_number;
  bool ring, silu;
  HeadScalar bias;                   ///< [D], data may be null
  ConvPool initial, final;           ///< may be one memory
  IndexVector cu_seqlens;            ///< [N+1]; null: sequence n is batch entry n
  IndexVector read_slots;            ///< [N]; null: sequence n has slot n
  IndexVector write_slots;           ///< likewise
  IndexVector num_accepted;          ///< [N], may be null
  IndexVector ring_position;         ///< [N], with `ring` only
  const uint8_t* has_initial_state;  ///< [N], may be null
  int64_t has_initial_stride;
  int64_t pad_below;
  int64_t B, T, N, D;
  int64_t max_tokens;  ///< of one sequence; longer ones are cut
  int32_t W, L;
  uint8_t* row_kinds;  ///< [B,T] RowKind out, may be null
  // Of the launch:
  StateOrder state_order;
  int64_t heads;          ///< of the block kernel: rows of CTAs
  int64_t tiles;          ///< of one batch entry, of the kernel of any form
  int32_t tile_tokens;    ///< that a thread walks through
  int64_t channel_warps;  ///< for each tile, and for the head of each sequence
  int64_t warps;          ///< all of them
};

using ConvKernel = void (*)(ConvParams);

}  // namespace sluice::cuda::conv1d

namespace sluice::cuda::conv1d_backward {

using conv1d::kMaxWidth, conv1d::kThreads, conv1d::kWarps;
using device::Number;

inline constexpr int kPack = 4;  ///< channels of a thread that moves packs
/// Tokens that a thread walks through; PERF more where slabs enough are left.
inline constexpr int64_t kSlabTokens = 64, kLongSlabTokens = 128, kManyTokens = 4096;
inline constexpr int kSums = kMaxWidth + 1;  ///< of a channel: right-aligned weights, the bias

struct ConvGradientParams {
  conv1d::ConvParams forward;  ///< the forward call; one part, without out
  conv1d::TokenChannels d_out, dx;
  conv1d::ConvPool d_final, dinitial;
  void *dweight, *dbias;  ///< each may be null
  int64_t dweight_strides[2], dbias_stride;
  Number dweight_number, dbias_number;
  float* sums;            ///< [slabs, kSums, D], null where neither is wanted
  int64_t slab_tokens;    ///< by T alone, since the order of sums follows
  int64_t slabs;          ///< of all batch entries
  int64_t slabs_each;     ///< of one
  int64_t channel_warps;  ///< for a slab, and for the state of a sequence
  int64_t warps;          ///< all of them
};

using ConvGradientKernel = void (*)(ConvGradientParams);

}  // namespace sluice::cuda::conv1d_backward

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PARAMS_H_
