// Which body runs, and how its work is cut: host arithmetic, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kPack = 4;   ///< elements of a pack
constexpr int64_t kLines = 4;  ///< channels of a thread of lines

bool whole_packs(int64_t stride) noexcept { return stride % kPack == 0; }

bool aligned(const TokenChannels& t) noexcept {
  const uintptr_t bytes = t.number == Number::kFloat32 ? 16 : 8;
  return reinterpret_cast<uintptr_t>(t.data) % bytes == 0;
}

bool rows_packed(const TokenChannels& t) noexcept {
  return t.channel_stride == 1 && aligned(t) && whole_packs(t.batch_stride) &&
         whole_packs(t.token_stride) && whole_packs(t.group_stride);
}

bool lines_packed(const TokenChannels& t) noexcept {
  return aligned(t) && whole_packs(t.batch_stride) && whole_packs(t.channel_stride) &&
         whole_packs(t.group_stride);
}

template <class Test>
bool all_parts(const ConvParams& p, Test test) noexcept {
  return std::all_of(p.part, p.part + p.parts, test);
}

}  // namespace

Body choose_body(const ConvParams& p) noexcept {
  const bool one_type =
      all_parts(p, [](const ChannelPart& c) { return c.x.number == c.out.number; });
  const bool floats = p.part[0].x.number == Number::kFloat32;
  if (one_type && all_parts(p, [](const ChannelPart& c) {
        return whole_packs(c.C) && rows_packed(c.x) && rows_packed(c.out);
      })) {
    return floats ? Body::kRowsOfFloats : Body::kRowsOfShorts;
  }
  // One token has no neighbours, so its strides say nothing; only rows mark kinds.
  const bool lines = p.T > 1 && p.row_kinds == nullptr && all_parts(p, [](const ChannelPart& c) {
                       return c.x.token_stride == 1 && c.out.token_stride == 1;
                     });
  if (!lines) return Body::kRowsOfElements;
  // WHY floats go one by one: 4 bytes a lane fill a warp's 128 as they are.
  const bool packed = one_type && !floats && all_parts(p, [](const ChannelPart& c) {
                        return lines_packed(c.x) && lines_packed(c.out);
                      });
  return packed ? Body::kLinesOfShorts : Body::kLinesOfElements;
}

void plan_launch(Body body, int multiprocessors, ConvParams* p) noexcept {
  const bool lines = body == Body::kLinesOfShorts || body == Body::kLinesOfElements;
  const bool packs = body != Body::kRowsOfElements && body != Body::kLinesOfElements;
  const int64_t pack = packs ? kPack : 1;
  p->head_warps = (p->D + 31) / 32;
  // Without packing, W - 1 tokens are the head's. A layer's row kinds are a body's work.
  const bool only_heads = p->cu_seqlens.data == nullptr && p->T < p->W && p->row_kinds == nullptr;
  if (lines) {
    p->channel_warps = (p->D + kLines - 1) / kLines;
    p->tile_tokens = 32 * pack;
  } else {
    // Longer tiles read fewer rows twice and load weights less often; shorter ones make more
    // threads: as long as leaves 512 threads to each multiprocessor, within 4 to 64.
    p->channel_warps = (p->D + 32 * pack - 1) / (32 * pack);
    const int64_t warps_wanted = int64_t{multiprocessors} * 16;
    p->tile_tokens = 64;
    while (p->tile_tokens > 4 &&
           p->B * ((p->T + p->tile_tokens - 1) / p->tile_tokens) * p->channel_warps <
               warps_wanted) {
      p->tile_tokens /= 2;
    }
  }
  p->tiles = only_heads ? 0 : (p->T + p->tile_tokens - 1) / p->tile_tokens;
  p->warps = p->head_warps * p->N + p->B * p->tiles * p->channel_warps;
}

}  // namespace sluice::cuda::conv1d
