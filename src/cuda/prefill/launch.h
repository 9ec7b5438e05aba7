// Host side of the fused prefill kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PREFILL_LAUNCH_H_
#define SLUICE_CUDA_PREFILL_LAUNCH_H_

#include <cstddef>

#include "cuda/device/prefill_params.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::prefill {

using device::PrefillParams;

/// The large tensors; the launcher encodes their maps.
struct Tiles {
  tile::TokenTensor q, k, v, o;
  bool l2norm = false;  ///< normalise q and k inside the kernel
};

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Clusters of so many CTAs of linear attention's cluster kernel that the current device runs at
/// once; 0 if none or if it cannot be asked.
int resident_clusters(int ctas, int device) noexcept;

/// Enqueues the main pass; before it the planner if params.split.request or lengths that may differ
/// ask for one, and the other passes of a split if the request may cut sequences.
/// @param params all but q, k, v, o (maps and strides) and the tables of split filled in
/// @param workspace split_layout().end bytes, 256-byte aligned; may be null if sequences stay whole
///        and params.cu_seqlens is null
/// @param device the current device
/// @param stream a cudaStream_t of it
/// @return a cudaError_t; 0 is success. Nothing is allocated and nothing waits for the device.
int launch(PrefillParams params, const Tiles& tiles, void* workspace, int device,
           void* stream) noexcept;

}  // namespace sluice::cuda::prefill

#endif  // SLUICE_CUDA_PREFILL_LAUNCH_H_
