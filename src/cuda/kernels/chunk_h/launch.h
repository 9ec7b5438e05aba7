// Declares the host side of Hopper's kernel of chunk_h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_H_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CHUNK_H_LAUNCH_H_

#include "cuda/device/stage_params.h"
#include "cuda/launch.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::chunk_h {

/// The large tensors; the launcher encodes their maps. h counts as [chunks of all batch entries, K,
/// HV, V]; v_new and h may have no data.
struct MappedTensors {
  tile::TokenTensor k, w, u, v_new, h;
};

/// Columns of V of a work item: 128 share what is read of w and k, where there are items enough.
constexpr int columns_of(const device::StageParams& params, int multiprocessors) noexcept {
  return params.V % 128 == 0 && params.N * params.HV * (params.V / 64) > multiprocessors ? 128 : 64;
}

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; nothing is allocated and nothing waits for the device. K is 64 or 128, V a
/// multiple of 64, C 64, w is given.
/// @param h_per_batch states between those of neighbouring batch entries
void launch(const device::StageParams& params, const MappedTensors& tensors, int32_t h_per_batch,
            Launcher& launcher) noexcept;

}  // namespace sluice::cuda::chunk_h

#endif  // SLUICE_CUDA_KERNELS_CHUNK_H_LAUNCH_H_
