// Host side of the fused prefill kernel.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_LAUNCH_H_

#include <cstddef>

#include "cuda/kernels/chunk_forward/params.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::chunk_forward {

/// The large tensors; the launcher encodes their maps.
struct Tiles {
  tile::TokenTensor q, k, v, o;
  bool l2norm = false;  ///< normalise q and k inside the kernel
};

/// Columns of V that one work item has: a head with 256 makes two.
constexpr int item_columns(int V) noexcept { return V == 64 ? 64 : 128; }

/// Scratch bytes for N sequences: the work order and the ticket counter.
size_t workspace_bytes(int64_t sequences) noexcept;

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel, and the planner before it where sequences may differ in length.
/// @param params all but q, k, v, o (maps and strides), order and ticket filled in
/// @param workspace at least workspace_bytes(N), 256-byte aligned; may be null if that is 0 or
///        params.cu_seqlens is null
/// @param stream a cudaStream_t of the current device
/// @return a cudaError_t; 0 is success. Nothing is allocated and nothing waits for the device.
int launch(ChunkForwardParams params, const Tiles& tiles, void* workspace, void* stream) noexcept;

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_LAUNCH_H_
