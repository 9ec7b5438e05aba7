// Names the kernels of chunk_backward for the host; inst/ compiles them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_
#define SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_

#include "cuda/device/instance.h"
#include "cuda/kernels/backward/launch.h"

namespace sluice::cuda::backward {

/// All take (BackwardParams, int64 items). narrow: K up to kNarrowK.
const void* plain_instance(Kernel kernel, bool narrow) noexcept;

/// With key-wise gates; they take (KeyBackwardParams, int64 items).
const void* key_tokens() noexcept;
const void* key_sums() noexcept;

/// By tensor cores, of one dtype of io, what a CTA does for rows or a chunk. `delta`: the gated delta
/// rule.
struct RowInstances {
  device::Instance maxima;        ///< of float16 alone
  device::Instance solve[4];      ///< [Solve]
  device::Instance gradients[2];  ///< [delta]
  device::Instance window_gradients;
  device::Instance values;
};
const RowInstances& bf16_rows() noexcept;
const RowInstances& fp16_rows() noexcept;

/// Likewise the chains. `wide`: items have 128 columns of V, else 64.
struct ChainInstances {
  device::Instance chain[3][2];  ///< [Chain][wide]
  device::Instance window[2];    ///< [Chain] of the delta rule, 64 columns
};
const ChainInstances& bf16_chains() noexcept;
const ChainInstances& fp16_chains() noexcept;

/// Likewise the chains of states and of gradients in one launch, 64 columns an item.
device::Instance bf16_both_chains() noexcept;
device::Instance fp16_both_chains() noexcept;

/// Takes (BackwardParams, int64 items). narrow: K = V = 64, else 128.
device::Instance segment_fold(bool narrow) noexcept;

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_INSTANCES_H_
