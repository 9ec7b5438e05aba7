// Chooses how the step of one token on heads of 128 x 128 goes about its heads. Results do not
// depend on it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_PLAN_SINGLE_H_
#define SLUICE_CUDA_DECODE_PLAN_SINGLE_H_

#include "cuda/kernels/decode/single/params.h"

namespace sluice::cuda::decode {

struct SinglePlan {
  SingleCut cut;
  bool early;     ///< the next launch may start ahead of this one's requests
  bool keeps;     ///< the L2 keeps old states until new ones replace them
  uint32_t ctas;  ///< of a launch, of kStream
};

/// PERF all of it measured, docs/kernels/decode.md: with few heads, warps of their own reach all
/// multiprocessors and wait for nobody, then rows of 256 bytes a tile are what memory likes best. A
/// few heads a multiprocessor are a few waves of CTAs, between which memory would stand still:
/// there a CTA takes one head after the other. With float32 states that fill the GPU often, the
/// next launch's CTAs had better not take places and bandwidth yet. States of more bytes than an
/// L2 has stay there until they are replaced, or they would leave and come again.
/// @param heads sequences times value heads
constexpr SinglePlan plan_single(int64_t heads, Number state, int processors) noexcept {
  const bool is_16bit = state != Number::kFloat32;
  const int64_t streams = int64_t{processors} * single_resident(SingleCut::kStream, !is_16bit);
  if (2 * heads <= processors) return {SingleCut::kNarrow, true, false, 0};
  if (heads <= 2 * int64_t{processors}) return {SingleCut::kWide, true, false, 0};
  const bool keeps = heads > (is_16bit ? 12 : 6) * int64_t{processors};
  if (heads <= (is_16bit ? 12 : 8) * int64_t{processors}) {
    return {SingleCut::kStream, true, keeps,
            static_cast<uint32_t>(heads < streams ? heads : streams)};
  }
  return {SingleCut::kMany, is_16bit, keeps, 0};
}

/// Of a layer step, which has whole heads and no other choice.
constexpr SinglePlan plan_single_layer(int64_t heads, int processors) noexcept {
  return {SingleCut::kWide, true, heads > processors, 0};
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_PLAN_SINGLE_H_
