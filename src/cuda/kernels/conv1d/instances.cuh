// Lists the instances of the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_

#include "cuda/kernels/conv1d/any_form.cuh"
#include "cuda/kernels/conv1d/blocks.cuh"
#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {

/// By Instance.
template <class Numbers>
inline constexpr ConvKernel kKernels[kInstances] = {
    block_kernel<Numbers, TokensInPacks>,
    block_kernel<Numbers, ChannelsInPacks<false>>,
    block_kernel<Numbers, ChannelsInPacks<true>>,
    update_kernel<Numbers, RingState, true>,
    update_kernel<Numbers, PairState<3, false>, false>,
    update_kernel<Numbers, PairState<4, false>, false>,
    update_kernel<Numbers, PairState<3, true>, false>,
    update_kernel<Numbers, PairState<4, true>, false>,
    update_kernel<Numbers, PairState<3, false>, true>,
    update_kernel<Numbers, PairState<4, false>, true>,
    update_kernel<Numbers, PairState<3, true>, true>,
    update_kernel<Numbers, PairState<4, true>, true>};

using Instances = ConvKernel[kInstances];

/// Of inputs in bfloat16 with weights of that type and in float32, then of inputs in float16.
inline constexpr const Instances* kTypes[] = {&kKernels<PairNumbers<device::BfloatPack, false>>,
                                              &kKernels<PairNumbers<device::BfloatPack, true>>,
                                              &kKernels<PairNumbers<device::HalfPack, false>>,
                                              &kKernels<PairNumbers<device::HalfPack, true>>};

inline ConvKernel kernel_of(const PlannedConv& conv) noexcept {
  if (conv.form == Form::kAny) return any_form_kernel;
  const ConvParams& p = conv.params;
  const int inputs = p.part[0].x.number == Number::kBfloat16 ? 0 : 2;
  const int weights = p.weight_number == Number::kFloat32 ? 1 : 0;
  return (*kTypes[inputs + weights])[conv.instance];
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_
