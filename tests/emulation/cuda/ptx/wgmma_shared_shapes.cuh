// Emulates src/cuda/ptx/wgmma_shared_shapes.cuh.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_WGMMA_SHARED_SHAPES_CUH_
#define SLUICE_CUDA_PTX_WGMMA_SHARED_SHAPES_CUH_

#include "cuda/ptx/wgmma.cuh"

namespace sluice::cuda::ptx {

template <int kD, class Io, size_t kDSize>
void wgmma_ss_n64_mn(Io, float (&d)[kDSize], uint64_t a, uint64_t b, int accumulate) {
  multiply<Io, 64>(d + kD, nullptr, a, b, true, accumulate);
}
template <int kD, class Io, size_t kDSize>
void wgmma_ss_n128_mn(Io, float (&d)[kDSize], uint64_t a, uint64_t b, int accumulate) {
  multiply<Io, 128>(d + kD, nullptr, a, b, true, accumulate);
}
template <int kD, class Io, size_t kDSize>
void wgmma_ss_n128(Io, float (&d)[kDSize], uint64_t a, uint64_t b, int accumulate) {
  multiply<Io, 128>(d + kD, nullptr, a, b, false, accumulate);
}
template <int kD, class Io, size_t kDSize>
void wgmma_ss_n128_mn_turned(Io, float (&d)[kDSize], uint64_t a, uint64_t b, int accumulate) {
  multiply<Io, 128>(d + kD, nullptr, a, b, true, accumulate, true);
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_WGMMA_SHARED_SHAPES_CUH_
