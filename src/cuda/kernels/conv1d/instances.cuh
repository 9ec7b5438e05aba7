// Lists the instances of the convolution kernels for a 16-bit type.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_

#include "cuda/kernels/conv1d/any_form.cuh"
#include "cuda/kernels/conv1d/blocks.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/conv1d/update.cuh"

namespace sluice::cuda::conv1d {

/// By Instance.
template <class Pack>
inline constexpr ConvKernel kKernels[kInstances] = {block_kernel<Pack, TokensInPacks>,
                                                    block_kernel<Pack, ChannelsInPacks<false>>,
                                                    block_kernel<Pack, ChannelsInPacks<true>>,
                                                    update_kernel<Pack, RingState, true>,
                                                    update_kernel<Pack, PairState<3, false>, false>,
                                                    update_kernel<Pack, PairState<4, false>, false>,
                                                    update_kernel<Pack, PairState<3, true>, false>,
                                                    update_kernel<Pack, PairState<4, true>, false>,
                                                    update_kernel<Pack, PairState<3, false>, true>,
                                                    update_kernel<Pack, PairState<4, false>, true>,
                                                    update_kernel<Pack, PairState<3, true>, true>,
                                                    update_kernel<Pack, PairState<4, true>, true>};

inline ConvKernel kernel_of(const PlannedConv& conv) noexcept {
  if (conv.form == Form::kAny) return any_form_kernel;
  const bool bfloats = conv.params.part[0].x.number == Number::kBfloat16;
  return bfloats ? kKernels<device::BfloatPack>[conv.instance]
                 : kKernels<device::HalfPack>[conv.instance];
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_INSTANCES_CUH_
