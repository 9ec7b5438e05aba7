// Cuts a convolution into launches: a grid has its limits, and some heads come first.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_PIECES_H_
#define SLUICE_CUDA_KERNELS_CONV1D_PIECES_H_

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {

/// Calls launch(Body, ConvParams) for warps first_warp .. warps - 1, at most `most` at a time.
template <class Launch>
void in_grids(Body body, ConvParams p, int64_t most, const Launch& launch) noexcept {
  const int64_t end = p.warps;
  for (; p.first_warp < end; p.first_warp = p.warps) {
    p.warps = end - p.first_warp < most ? end : p.first_warp + most;
    launch(body, p);
  }
}

/// Likewise for a convolution of any size: heads that rows of packs do not do come first.
template <class Launch>
void in_launches(ConvParams p, int multiprocessors, int64_t most, const Launch& launch) noexcept {
  const Body body = choose_body(p);
  plan_launch(body, multiprocessors, &p);
  if (is_whole(body)) return launch(body, p);
  const bool packs =
      body == Body::kRowsOfFloats || body == Body::kRowsOfBfloats || body == Body::kRowsOfHalves;
  if (packs && p.head_form == HeadForm::kElements) {
    ConvParams heads = p;
    heads.warps = p.first_warp = p.heads;
    in_grids(Body::kRowsOfElements, heads, most, launch);
  }
  in_grids(body, p, most, launch);
}

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_PIECES_H_
