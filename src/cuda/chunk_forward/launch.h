// Launches the prefill kernels of Hopper GPUs: the passes of a cut, one after the other.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_FORWARD_LAUNCH_H_
#define SLUICE_CUDA_CHUNK_FORWARD_LAUNCH_H_

#include "cuda/device/prefill_params.h"
#include "cuda/kernels/chunk_forward/summary_params.h"
#include "cuda/launch.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::prefill {

using device::PrefillParams;

/// The large tensors; the launcher encodes their maps.
struct MappedTensors {
  tile::TokenTensor q, k, v, o;
  bool l2norm = false;  ///< normalise q and k
};

/// Load all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_gated_delta() noexcept;
int load_linear_attention() noexcept;
int load_key_gates() noexcept;

/// Clusters of so many CTAs of linear attention's cluster kernel that the current device runs at
/// once; 0 if none or if it cannot be asked.
int resident_clusters(int ctas, int device) noexcept;

/// Enqueues the main pass; before it the planner if params.segments.cut or lengths that may differ
/// ask for one, and the other passes of a cut if the request may cut sequences. Nothing is allocated
/// and nothing waits for the device.
/// @param params all but q, k, v, o (maps and strides) and the tables of segments filled in
/// @param workspace segment_workspace().end bytes, 256-byte aligned; may be null if sequences stay whole
///        and params.cu_seqlens is null. What params.prepared and params.key point at lies elsewhere
void launch(PrefillParams params, const MappedTensors& tensors, void* workspace,
            Launcher& launcher) noexcept;

/// Enqueues the maps of pieces, which are params' sequences, in leaves of params.segments.cut.length
/// chunks. q and o of `tensors` are not read.
/// @param workspace of cut_workspace() bytes for params.segments.cut, 256-byte aligned
void launch_summary(PrefillParams params, const MappedTensors& tensors,
                    const chunk_forward::SummaryParams& out, void* workspace,
                    Launcher& launcher) noexcept;

}  // namespace sluice::cuda::prefill

#endif  // SLUICE_CUDA_CHUNK_FORWARD_LAUNCH_H_
