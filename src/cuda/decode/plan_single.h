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

/// CTAs that stay: as many as the GPU holds at a time.
constexpr SinglePlan stream_plan(int64_t heads, int64_t streams, bool keeps) noexcept {
  return {SingleCut::kStream, true, keeps,
          static_cast<uint32_t>(heads < streams ? heads : streams)};
}

/// PERF all of it measured, docs/kernels/decode.md: with few heads, warps of their own reach all
/// multiprocessors and wait for nobody, then rows of 256 bytes a tile are what memory likes best. A
/// few heads a multiprocessor are a few waves of CTAs, between which memory would stand still:
/// there a CTA takes one head after the other. With float32 states that fill the GPU often, the
/// next launch's CTAs had better not take places and bandwidth yet. States of more bytes than an
/// L2 has stay there until they are replaced, or they would leave and come again.
/// @param heads sequences times value heads
constexpr SinglePlan plan_single_kv(int64_t heads, bool is_16bit, int64_t processors) noexcept {
  const int64_t streams = processors * single_resident(SingleCut::kStream, !is_16bit);
  if (2 * heads <= processors) return {SingleCut::kNarrow, true, false, 0};
  if (heads <= processors) return {SingleCut::kWide, true, false, 0};
  if (2 * heads <= 3 * processors) {
    return is_16bit ? SinglePlan{SingleCut::kMany, true, false, 0}
                    : SinglePlan{SingleCut::kNarrow, true, true, 0};
  }
  const bool keeps = heads > (is_16bit ? 12 : 6) * processors;
  if (heads <= (is_16bit ? 12 : 8) * processors) {
    return stream_plan(heads, streams, keeps || (is_16bit && heads <= streams));
  }
  return {SingleCut::kMany, is_16bit, keeps, 0};
}

/// The same of [V,K]. There a warp has all rows of its columns, which lie side by side, so that no cut
/// is worse in memory than another, and narrow ones leave the least work for a last wave. CTAs that
/// stay are ahead with a few heads each, and where all have equally many.
constexpr SinglePlan plan_single_vk(int64_t heads, bool is_16bit, int64_t processors) noexcept {
  const int64_t streams = processors * single_resident(SingleCut::kStream, !is_16bit);
  const int64_t rounds = (heads + streams - 1) / streams;
  if (is_16bit && heads > 3 * processors && heads <= 8 * processors &&
      10 * heads >= 9 * rounds * streams) {
    return stream_plan(heads, streams, false);
  }
  return {SingleCut::kNarrow, true, heads > processors, 0};
}

constexpr SinglePlan plan_single(int64_t heads, Number state, bool vk, int processors) noexcept {
  const bool is_16bit = state != Number::kFloat32;
  return vk ? plan_single_vk(heads, is_16bit, processors)
            : plan_single_kv(heads, is_16bit, processors);
}

/// The same where tokens are packed.
constexpr SinglePlan plan_single_packed(int64_t heads, int processors) noexcept {
  return {SingleCut::kNarrow, true, heads > processors, 0};
}

/// Of a layer step, which has whole heads and no other choice.
constexpr SinglePlan plan_single_layer(int64_t heads, int processors) noexcept {
  return {SingleCut::kWide, true, heads > processors, 0};
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_PLAN_SINGLE_H_
