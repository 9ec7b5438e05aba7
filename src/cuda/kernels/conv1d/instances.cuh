// Lists the instances of the convolution kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_

#include "cuda/kernels/conv1d/any_form.cuh"
#include "cuda/kernels/conv1d/blocks.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/conv1d/update.cuh"

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

/// Those of a type of inputs and one of weights.
inline const ConvKernel* kernels_of(bool bfloats, bool float_weights) noexcept {
  using device::BfloatPack, device::HalfPack;
  if (float_weights) {
    return bfloats ? kKernels<PairNumbers<BfloatPack, true>>
                   : kKernels<PairNumbers<HalfPack, true>>;
  }
  return bfloats ? kKernels<PairNumbers<BfloatPack, false>>
                 : kKernels<PairNumbers<HalfPack, false>>;
}

inline ConvKernel kernel_of(const PlannedConv& conv) noexcept {
  if (conv.form == Form::kAny) return any_form_kernel;
  const ConvParams& p = conv.params;
  return kernels_of(p.part[0].x.number == Number::kBfloat16,
                    p.weight_number == Number::kFloat32)[conv.instance];
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_
