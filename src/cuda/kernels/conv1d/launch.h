// Describes calls to the kernels of the convolution and of its gradients, one POD each, passed as a
// __grid_constant__; chooses the kernels and launches them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_

#include "cuda/device/views.h"
#include "cuda/launch.h"

namespace sluice::cuda::conv1d {

using device::GradientForm, device::HeadScalar, device::IndexVector, device::Number,
    device::RowKind;

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

/// Arguments of the convolution kernels.
struct ConvParams {
  ChannelPart part[3];
  int32_t parts;
  bool ring, silu;
  HeadScalar weight;                 ///< [D,W], weights of a channel side by side
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
  RowKind* row_kinds;  ///< [B,T] out, may be null
  // Of the launch:
  StateOrder state_order;
  int64_t heads;          ///< of the block kernel: rows of CTAs
  int64_t tiles;          ///< of one batch entry, of the kernel of any form
  int32_t tile_tokens;    ///< that a thread walks through
  int64_t channel_warps;  ///< for each tile, and for the head of each sequence
  int64_t warps;          ///< all of them
};

using ConvKernel = void (*)(ConvParams);

/// A kernel, by the form that it is for. Bits do not depend on it.
enum class Form {
  kAny,           ///< any type, stride and option, a channel a thread
  kChannelFirst,  ///< tokens are neighbours, in the form of models
  kChannelLast,   ///< channels are
  kUpdate,        ///< likewise, one token of each sequence
};

/// An instance of a 16-bit type: an index of kKernels (blocks.cuh).
enum Instance {
  kChannelFirstBlocks,
  kChannelLastBlocks,
  kBlocksOfGroups,  ///< channel-last, groups of channels apart
  kRingUpdate,
  kUpdates,  ///< and 1 of four columns, 2 of columns outside, 4 of slots that are looked up
  kInstances = kUpdates + 8
};

/// A launch: lowered parameters, and what plan_launch() makes of them.
struct PlannedConv {
  Form form;
  Instance instance;  ///< unless the form is kAny
  GridSize grid;      ///< nothing is launched where an extent is 0
  ConvParams params;
};

inline constexpr int kSlabPack = 4;  ///< channels of a thread that moves packs
/// Tokens that a thread walks through; PERF more where slabs enough are left.
inline constexpr int64_t kSlabTokens = 64, kLongSlabTokens = 128, kManyTokens = 4096;
inline constexpr int kSums = kMaxWidth + 1;  ///< of a channel: right-aligned weights, the bias

/// dweight [D,W] or dbias [D]; strides in elements.
struct ChannelGradient {
  void* data;  ///< may be null
  int64_t channel_stride, tap_stride;
  Number number;
};

struct ConvGradientParams {
  ConvParams forward;  ///< the forward call; one part, without out
  TokenChannels d_out, dx;
  ConvPool d_final, dinitial;
  ChannelGradient dweight, dbias;
  float* sums;            ///< [slabs, kSums, D], null where neither is wanted
  int64_t slab_tokens;    ///< by T alone, since the order of sums follows
  int64_t slabs;          ///< of all batch entries
  int64_t slabs_each;     ///< of one
  int64_t channel_warps;  ///< for a slab, and for the state of a sequence
  int64_t warps;          ///< all of them
  int64_t most_warps;     ///< of any form, which has the most
};

using ConvGradientKernel = void (*)(ConvGradientParams);

/// Lowered parameters, and what plan_launch() makes of them.
struct PlannedGradients {
  GradientForm form;
  ConvGradientParams params;
};

/// Fill in all but the lowered parameters, for the fastest kernel that takes them. Bits do not depend on
/// `multiprocessors`.
void plan_launch(int multiprocessors, PlannedConv* conv) noexcept;
void plan_launch(PlannedGradients* gradients) noexcept;

/// Load the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;
int load_gradient_kernels() noexcept;

/// Enqueue what was planned. Nothing is allocated and nothing waits for the device.
void launch(const PlannedConv& conv, Launcher& launcher) noexcept;
void launch(const PlannedGradients& gradients, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
