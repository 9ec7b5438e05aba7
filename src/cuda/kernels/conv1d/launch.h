// Chooses and launches the kernels of the convolution and of its gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
#define SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_

#include "cuda/kernels/conv1d/params.h"
#include "cuda/launch.h"

namespace sluice::cuda::conv1d {

/// A kernel, by the form that it is for. Bits do not depend on it.
enum class Form {
  kAny,           ///< any type, stride and option, a channel a thread
  kChannelFirst,  ///< tokens are neighbours, in the form of models
  kChannelLast,   ///< channels are
  kUpdate,        ///< likewise, one token of each sequence
};

/// An instance of a 16-bit type: an index of kKernels (instances.cuh).
enum Instance {
  kChannelFirstBlocks,
  kChannelLastBlocks,
  kBlocksOfGroups,  ///< channel-last, groups of channels apart
  kRingUpdate,
  kUpdates,  ///< and 1 of four columns, 2 of columns outside, 4 of slots that are looked up
  kInstances = kUpdates + 8
};

/// A launch: lowered parameters, and what plan_launch() makes of them.
struct PlannedConv {
  Form form;
  Instance instance;  ///< unless the form is kAny
  GridSize grid;      ///< nothing is launched where an extent is 0
  ConvParams params;
};

/// Fills in all but the lowered parameters, for the fastest kernel that takes them. Bits do not depend on
/// `multiprocessors`.
void plan_launch(int multiprocessors, PlannedConv* conv) noexcept;

/// Loads all instances onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues a planned convolution. Nothing is allocated and nothing waits for the device.
void launch(const PlannedConv& conv, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::conv1d

namespace sluice::cuda::conv1d_backward {

/// How a thread moves numbers: a channel of any form, or packs of one 16-bit type.
enum class Form { kAny, kBfloat16, kFloat16 };

/// Of lowered parameters.
Form form_of(const ConvGradientParams& params) noexcept;

/// Fills in what follows from the form and from sizes.
void plan_launch(Form form, ConvGradientParams* params) noexcept;

/// Loads the kernels onto the current device, which the first launch would do otherwise.
/// @return a cudaError_t
int load_kernels() noexcept;

/// Enqueues both kernels. Nothing is allocated and nothing waits for the device.
void launch(Form form, const ConvGradientParams& params, Launcher& launcher) noexcept;

}  // namespace sluice::cuda::conv1d_backward

#endif  // SLUICE_CUDA_KERNELS_CONV1D_LAUNCH_H_
