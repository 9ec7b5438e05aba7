// Declares the host side of the kernels of chunk_backward.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_LAUNCH_H_

#include "cuda/kernels/backward/config.h"
#include "cuda/kernels/backward/params.h"
#include "cuda/launch.h"
#include "cuda/tile/token_map.hpp"

namespace sluice::cuda::backward {

enum class Kernel {
  kPrepare,    ///< l2 norm, g and beta; before the stages
  kLocal,      ///< dN inside chunks
  kChain,      ///< gradients of states, the rest of dN
  kGradients,  ///< all that is by chunk
  kKeys,       ///< dq and dk over value heads
  kHeadSums,   ///< dA_log and ddt_bias of gradients of gates
  kChunkSums,  ///< dA_log and ddt_bias of sums over chunks
};
inline constexpr int kKernels = static_cast<int>(Kernel::kChunkSums) + 1;

/// Extents of a launch. Host code, tested without a GPU.
struct Launch {
  int64_t items;  ///< CTAs that have work to do
  int threads;
  int64_t shared_bytes;  ///< dynamic
};
Launch plan_launch(Kernel kernel, const BackwardParams& params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; nothing is allocated and nothing waits for the device.
void launch(Kernel kernel, const BackwardParams& params, Launcher& launcher) noexcept;
/// What key-wise gates have in place of the kernels by chunk: gradients of all but q and k, whose
/// parts by value head are left to kKeys.
void launch_key_wise(const KeyBackwardParams& params, Launcher& launcher) noexcept;

// --------------------------- 16-bit numbers by tensor cores on Hopper, K = V of 64 or 128 ----

/// The large tensors, of which the launchers make maps; what a call does not have has no data.
struct TileTensors {
  tile::TokenTensor q, k;  ///< normalised, if there is a norm
  tile::TokenTensor v, d_o, e, dv, B;
  tile::TokenTensor S, D;    ///< [chunks of all batch entries, K, HV, V]
  int32_t states_per_batch;  ///< states between those of neighbouring batch entries
};

/// Whether items of a chain have 128 columns of V: those share what is read of q and k, where there
/// are items enough.
constexpr bool has_wide_chain(const StageParams& p, int multiprocessors) noexcept {
  return p.V == 128 && p.N * p.HV * 2 > multiprocessors;
}

/// Whether there are items of both chains of which all can run at a time, in 64 columns of V.
constexpr bool has_both_chains(const StageParams& p, int multiprocessors) noexcept {
  return p.N * p.HV > 0 && p.N * p.HV * (p.V / 32) <= multiprocessors;
}

/// Whether gradients of chunks that the chains have left begin while the chains still run.
/// PERF not where the chains follow each other: the CTAs of the last one end together. Nor with heads
/// of 64, whose chains leave half of the GPU and slow down beside others.
constexpr bool has_early_gradients(const BackwardParams& p, int multiprocessors) noexcept {
  return p.delta_rule && p.stage.V == kTileSize &&
         (p.cut.exists() || has_both_chains(p.stage, multiprocessors));
}

/// Loads these kernels as load_kernels() does the others. @return a cudaError_t
int load_tile_kernels() noexcept;

/// Whether q and k go through the norm, both from rows of 128 that 16 bytes at a time can be read of; not
/// in windows.
inline bool has_aligned_keys(const BackwardParams& p) noexcept {
  if (p.window.exists() || !p.has_norm || p.stage.K != kTileSize || p.v_copy.data != nullptr ||
      p.d_o_copy.data != nullptr)
    return false;
  for (const TokenRows* rows : {&p.raw_q, &p.raw_k}) {
    const int64_t strides = rows->batch_stride | rows->token_stride | rows->head_stride;
    if (reinterpret_cast<uintptr_t>(rows->data) % 16 != 0 || strides % 8 != 0) return false;
  }
  return true;
}
/// Normalised q and k, rows that the copy engine cannot read, g and beta; of aligned keys sums of gates
/// too. With the delta rule those are left to launch_solve().
void launch_prepare(const BackwardParams& params, Launcher& launcher) noexcept;
/// Of float16 what the powers of two are found by that gradients are multiplied by inside.
void launch_maxima(const BackwardParams& params, Launcher& launcher) noexcept;
/// What the delta rule has of a chunk whatever the state: B; and what launch_prepare() has left.
void launch_solve(const BackwardParams& params, Launcher& launcher) noexcept;
/// Gradients of states, and dv; of cut sequences what a pass has of them.
void launch_chain(const BackwardParams& params, const TileTensors& tensors, ChainPass pass,
                  Launcher& launcher) noexcept;
/// Likewise states and e, of the delta rule.
void launch_states(const BackwardParams& params, const TileTensors& tensors, ChainPass pass,
                   Launcher& launcher) noexcept;
/// What boundaries hold, of the maps of segments.
void launch_fold(const BackwardParams& params, Launcher& launcher) noexcept;
/// Both chains of the delta rule, all passes.
void launch_chains(const BackwardParams& params, const TileTensors& tensors,
                   Launcher& launcher) noexcept;
/// All other gradients by chunk.
void launch_gradients(const BackwardParams& params, const TileTensors& tensors,
                      Launcher& launcher) noexcept;

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_LAUNCH_H_
