// Chooses and launches the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_

#include "cuda/kernels/conv1d/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::conv1d {

/// A kernel, by the form that it is for. Bits do not depend on it.
enum class Form {
  kAny,           ///< any type, stride and option, a channel a thread
  kChannelFirst,  ///< tokens are neighbours: 16 bytes of one 16-bit type
  kChannelLast,   ///< channels are neighbours, in the form of models
  kUpdate,        ///< likewise, one token of each sequence
};

/// What instances of the update kernel differ in.
struct UpdateForm {
  bool ring;     ///< columns outside, slots looked up
  bool four;     ///< L = 4, else 3
  bool outside;  ///< the columns
  bool indexed;  ///< slots are looked up, or states may be absent
};

/// The fastest kernel for these strides, types and addresses.
Form choose_form(const ConvParams& params) noexcept;

/// Fills in the members of the launch. Bits do not depend on `multiprocessors`.
void plan_launch(Form form, int multiprocessors, ConvParams* params) noexcept;

UpdateForm update_form_of(const ConvParams& params) noexcept;
/// Whether a part's groups of channels lie apart: another instance of the channel-last kernel.
bool has_groups_apart(const ConvParams& params) noexcept;

/// CTAs of a planned launch.
GridSize grid_of(Form form, const ConvParams& params) noexcept;

/// Calls launch(ConvParams) for a planned convolution: once, or where warps are counted for at most
/// `most` of them at a time.
template <class Launch>
void in_grids(Form form, ConvParams p, int64_t most, const Launch& launch) noexcept {
  if (form == Form::kChannelLast || form == Form::kUpdate) {
    const GridSize grid = grid_of(form, p);
    if (grid.x > 0 && grid.y > 0 && grid.z > 0) launch(p);
    return;
  }
  const int64_t end = p.warps;
  for (; p.first_warp < end; p.first_warp = p.warps) {
    p.warps = end - p.first_warp < most ? end : p.first_warp + most;
    launch(p);
  }
}

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues the kernel of a form. Nothing is allocated and nothing waits for the device.
/// @param params all but the members of the launch filled in
void launch(Form form, const ConvParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
