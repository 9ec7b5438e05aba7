// Host side of the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_

#include <cstddef>

#include "cuda/kernels/conv1d/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::conv1d {

/// Which kernel: how its bodies move elements.
enum class Body {
  kRowsOfFloats,  ///< channels are neighbours: 16 bytes of one type ..
  kRowsOfBfloats,
  kRowsOfHalves,
  kRowsOfElements,  ///< .. or one element of any type and stride
  kLinesOfBfloats,  ///< tokens are neighbours: likewise
  kLinesOfHalves,
  kLinesOfElements,
  kHeadsOfFloats,  ///< no bodies at all, and heads by packs
  kHeadsOfBfloats,
  kHeadsOfHalves,
  kUpdates,    ///< in the forms of models: one token of each sequence ..
  kPatches,    ///< .. whole batch entries, without states
  kCutPatches  ///< .. and any sequences, with states
};

/// What instances of updates differ in.
struct UpdateForm {
  bool four;     ///< L = 4, else 3
  bool outside;  ///< the columns
  bool indexed;  ///< slots are looked up, or states may be absent
};

/// The fastest body for these strides, types and addresses. Bits do not depend on it.
Body choose_body(const ConvParams& params) noexcept;

/// Fills in the members of the launch. Bits do not depend on `multiprocessors`.
void plan_launch(Body body, int multiprocessors, ConvParams* params) noexcept;

UpdateForm update_form_of(const ConvParams& params) noexcept;

/// Whether a launch has all of the work, whatever first_warp and warps are.
inline bool is_whole(Body body) noexcept { return body >= Body::kUpdates; }

/// CTAs of a planned launch.
GridSize grid_of(Body body, const ConvParams& params) noexcept;

/// Bytes of shared memory of a CTA, of a planned launch.
size_t shared_bytes(Body body, const ConvParams& params) noexcept;

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel, in rare forms two. Nothing is allocated and nothing waits for the device.
/// @param params all but the members of the launch filled in
void launch(const ConvParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
