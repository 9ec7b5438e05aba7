// Declares the host side of the kernels of chunk_backward.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_LAUNCH_H_

#include "cuda/kernels/backward/key_params.h"
#include "cuda/kernels/backward/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::backward {

enum class Kernel {
  kPrepare,     ///< l2 norm, g and beta; before the stages
  kLocal,       ///< dN inside chunks
  kChain,       ///< gradients of states, the rest of dN
  kGradients,   ///< all that is by chunk
  kKeys,        ///< dq and dk over value heads
  kHeadSums,    ///< dA_log and ddt_bias
  kLocalTiles,  ///< from here on: 16-bit numbers by tensor cores, K = V = 128, states in KV
  kChainTiles,
  kGradientTiles,
};
inline constexpr int kKernels = static_cast<int>(Kernel::kGradientTiles) + 1;

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

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_LAUNCH_H_
