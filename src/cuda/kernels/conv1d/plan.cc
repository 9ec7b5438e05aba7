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

/// Four neighbouring channels of x and out are packs of one type.
bool channels_packed(const ConvParams& p) noexcept {
  return all_parts(p, [](const ChannelPart& c) {
    return c.x.number == c.out.number && whole_packs(c.C) && rows_packed(c.x) && rows_packed(c.out);
  });
}

/// Without packing, W - 1 tokens are the head's. A layer's row kinds are a body's work.
bool only_heads(const ConvParams& p) noexcept {
  return p.cu_seqlens.data == nullptr && p.T < p.W && p.row_kinds == nullptr;
}

bool pool_fits(const ConvPool& pool, Number number) noexcept {
  const uintptr_t bytes = number == Number::kFloat32 ? 16 : 8;
  return pool.data == nullptr ||
         (pool.number == number && reinterpret_cast<uintptr_t>(pool.data) % bytes == 0 &&
          whole_packs(pool.slot_stride));
}

bool columns_outside(const ConvPool& pool) noexcept {
  return pool.data == nullptr || (pool.channel_stride == 1 && whole_packs(pool.column_stride));
}

bool columns_inside(const ConvPool& pool, int64_t L) noexcept {
  return pool.data == nullptr || (pool.column_stride == 1 && pool.channel_stride == L);
}

HeadForm head_form_of(const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  const bool fits = channels_packed(p) && p.num_accepted.data == nullptr && p.L <= kMaxWidth &&
                    pool_fits(p.initial, number) && pool_fits(p.final, number);
  if (!fits) return HeadForm::kElements;
  if (columns_outside(p.initial) && columns_outside(p.final)) return HeadForm::kColumnsOutside;
  const bool inside =
      !p.ring && p.L >= 3 && columns_inside(p.initial, p.L) && columns_inside(p.final, p.L);
  return inside ? HeadForm::kColumnsInside : HeadForm::kElements;
}

Body body_of_rows(const ConvParams& p) noexcept {
  return p.part[0].x.number == Number::kFloat32 ? Body::kRowsOfFloats : Body::kRowsOfShorts;
}

Body body_of_lines(const ConvParams& p) noexcept {
  // WHY floats go one by one: 4 bytes a lane fill a warp's 128 as they are.
  const bool packed = all_parts(p, [](const ChannelPart& c) {
    return c.x.number == c.out.number && c.x.number != Number::kFloat32 && lines_packed(c.x) &&
           lines_packed(c.out);
  });
  return packed ? Body::kLinesOfShorts : Body::kLinesOfElements;
}

}  // namespace

Body choose_body(const ConvParams& p) noexcept {
  if (channels_packed(p)) return body_of_rows(p);
  // One token has no neighbours, so its strides say nothing; only rows mark kinds.
  const bool lines = p.T > 1 && p.row_kinds == nullptr && all_parts(p, [](const ChannelPart& c) {
                       return c.x.token_stride == 1 && c.out.token_stride == 1;
                     });
  return lines ? body_of_lines(p) : Body::kRowsOfElements;
}

void plan_launch(Body body, int multiprocessors, ConvParams* p) noexcept {
  const bool lines = body == Body::kLinesOfShorts || body == Body::kLinesOfElements;
  const bool elements = body == Body::kRowsOfElements || body == Body::kLinesOfElements;
  const int64_t pack = elements ? 1 : kPack;
  p->head_form = head_form_of(*p);
  const int64_t head_channels = p->head_form == HeadForm::kElements ? 32 : 32 * kPack;
  p->head_warps = (p->D + head_channels - 1) / head_channels;
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
  p->tiles = only_heads(*p) ? 0 : (p->T + p->tile_tokens - 1) / p->tile_tokens;
  p->warps = p->head_warps * p->N + p->B * p->tiles * p->channel_warps;
}

}  // namespace sluice::cuda::conv1d
