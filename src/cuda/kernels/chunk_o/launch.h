// Declares the host side of the kernel of outputs from given states.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_O_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CHUNK_O_LAUNCH_H_

#include "cuda/device/stage_params.h"
#include "cuda/launch.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::chunk_o {

/// The large tensors; the launcher encodes their maps. h counts as [chunks of all batch entries, K,
/// HV, V].
struct MappedTensors {
  tile::TokenTensor q, k, v, h, o;
};

/// Columns of V of a work item.
constexpr int columns_of(int64_t V) noexcept { return V % 128 == 0 ? 128 : 64; }

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel; nothing is allocated and nothing waits for the device. K is 64 or 128, V a
/// multiple of 64, C 64.
/// @param h_per_batch states between those of neighbouring batch entries
void launch(const device::StageParams& params, const MappedTensors& tensors, int32_t h_per_batch,
            Launcher& launcher) noexcept;

}  // namespace sluice::cuda::chunk_o

#endif  // SLUICE_CUDA_KERNELS_CHUNK_O_LAUNCH_H_
