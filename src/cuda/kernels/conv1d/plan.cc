// Which body runs, and how its work is cut: host arithmetic, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kMaxLines = 16;  ///< channels of a thread of lines, at most

int64_t parts_of(int64_t whole, int64_t part) noexcept { return (whole + part - 1) / part; }

/// Elements of 16 bytes.
int64_t pack_of(Number number) noexcept { return number == Number::kFloat32 ? 4 : 8; }

bool aligned(const void* data) noexcept { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

bool rows_packed(const TokenChannels& t) noexcept {
  const int64_t pack = pack_of(t.number);
  return t.channel_stride == 1 && aligned(t.data) && t.batch_stride % pack == 0 &&
         t.token_stride % pack == 0 && t.group_stride % pack == 0;
}

bool lines_packed(const TokenChannels& t) noexcept {
  const int64_t pack = pack_of(t.number);
  return aligned(t.data) && t.batch_stride % pack == 0 && t.channel_stride % pack == 0 &&
         t.group_stride % pack == 0;
}

template <class Test>
bool all_parts(const ConvParams& p, Test test) noexcept {
  return std::all_of(p.part, p.part + p.parts, test);
}

/// Neighbouring channels of x and out are packs of one type, that of the first part.
bool channels_packed(const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  return all_parts(p, [&](const ChannelPart& c) {
    return c.x.number == number && c.out.number == number && c.C % pack_of(number) == 0 &&
           rows_packed(c.x) && rows_packed(c.out);
  });
}

/// Without packing, W - 1 tokens are the head's. A layer's row kinds are a body's work.
bool only_heads(const ConvParams& p) noexcept {
  return p.cu_seqlens.data == nullptr && p.T < p.W && p.row_kinds == nullptr;
}

bool pool_fits(const ConvPool& pool, Number number) noexcept {
  return pool.data == nullptr ||
         (pool.number == number && aligned(pool.data) && pool.slot_stride % pack_of(number) == 0);
}

bool columns_outside(const ConvPool& pool) noexcept {
  return pool.data == nullptr ||
         (pool.channel_stride == 1 && pool.column_stride % pack_of(pool.number) == 0);
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

/// Weights and bias in x's 16-bit type, W = 4, moved by pairs of channels.
bool weights_in_pairs(const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  const bool bias_fits = p.bias.data == nullptr ||
                         (p.bias.number == number && p.bias.stride == 1 && aligned(p.bias.data));
  return number != Number::kFloat32 && p.W == kMaxWidth && p.weight_in_fours &&
         p.weight_number == number && aligned(p.weight) && bias_fits;
}

bool states_in_pairs(const ConvParams& p) noexcept {
  const bool none = p.initial.data == nullptr && p.final.data == nullptr;
  const bool columns = !p.ring && p.L >= 3 && p.L <= kMaxWidth;
  return (none || columns) && head_form_of(p) != HeadForm::kElements;
}

constexpr int64_t kMaxExtent = 65535;  ///< of a grid's second and third dimension

/// What update.cuh is for: one token of each sequence, all of it in one 16-bit type and packs.
bool is_update(const ConvParams& p) noexcept {
  return p.parts == 1 && p.part[0].C == p.D && p.T == 1 && weights_in_pairs(p) &&
         states_in_pairs(p) && p.N <= kMaxExtent;
}

/// Whether no sequence begins or ends between rows and none has a state.
bool uncut(const ConvParams& p) noexcept {
  return p.cu_seqlens.data == nullptr && p.read_slots.data == nullptr &&
         p.initial.data == nullptr && p.final.data == nullptr && p.row_kinds == nullptr;
}

/// Whether a part's groups of channels lie side by side in x and out, so that they are one.
bool groups_dense(const ConvParams& p) noexcept {
  for (int i = 0; i < p.parts; ++i) {
    const ChannelPart& c = p.part[i];
    const int64_t end = i + 1 < p.parts ? p.part[i + 1].first : p.D;
    const bool dense = c.x.group_stride == c.C && c.out.group_stride == c.C;
    if (!dense && end - c.first != c.C) return false;
  }
  return true;
}

int64_t patch_tiles(const ConvParams& p) noexcept { return parts_of(p.T, kPatchTokens); }

/// CTAs of heads beside each other: two have the channels that one of patches has.
int64_t patch_heads(const ConvParams& p) noexcept {
  return uncut(p) ? 0 : p.cu_seqlens.data == nullptr ? 2 : 2 * p.N;
}

/// What patch.cuh is for, of packs of channels.
bool is_patches(const ConvParams& p) noexcept {
  return weights_in_pairs(p) && p.silu && groups_dense(p) && (uncut(p) || states_in_pairs(p)) &&
         p.B <= kMaxExtent && patch_heads(p) + patch_tiles(p) <= kMaxExtent;
}

/// Of bodies in the order float32, bfloat16, float16.
Body of_type(Body floats, Number number) noexcept {
  return static_cast<Body>(static_cast<int>(floats) + static_cast<int>(number));
}

Body body_of_lines(const ConvParams& p) noexcept {
  // WHY floats go one by one: 4 bytes a lane fill a warp's 128 as they are.
  const Number number = p.part[0].x.number;
  const bool packed = number != Number::kFloat32 && all_parts(p, [&](const ChannelPart& c) {
                        return c.x.number == number && c.out.number == number &&
                               lines_packed(c.x) && lines_packed(c.out);
                      });
  if (!packed) return Body::kLinesOfElements;
  return number == Number::kBfloat16 ? Body::kLinesOfBfloats : Body::kLinesOfHalves;
}

/// Longer tiles read fewer rows twice and load weights less often; shorter ones make more threads:
/// as long as leaves enough of them to each multiprocessor, within 8 (rows in flight) to 64.
void plan_rows(int64_t warps_wanted, ConvParams* p) noexcept {
  p->tile_tokens = 64;
  while (p->tile_tokens > 8 &&
         p->B * parts_of(p->T, p->tile_tokens) * p->channel_warps < warps_wanted) {
    p->tile_tokens /= 2;
  }
}

/// Likewise, of channels that a thread goes through with its tokens.
void plan_lines(int64_t pack, int64_t warps_wanted, ConvParams* p) noexcept {
  p->tile_tokens = static_cast<int32_t>(32 * pack);
  const int64_t tiles = p->B * parts_of(p->T, p->tile_tokens);
  p->lines = kMaxLines;
  while (p->lines > 4 && tiles * parts_of(p->D, p->lines) < warps_wanted) p->lines /= 2;
  p->channel_warps = parts_of(p->D, p->lines);
}

void plan_heads(ConvParams* p) noexcept {
  p->head_form = head_form_of(*p);
  const bool packed = p->head_form != HeadForm::kElements;
  const int64_t pack = packed ? pack_of(p->part[0].x.number) : 1;
  p->head_warps = parts_of(p->D, 32 * pack);
  p->heads = p->head_warps * p->N;
}

/// Launches that are not counted in warps.
void plan_whole(Body body, ConvParams* p) noexcept {
  p->tile_tokens = kPatchTokens;
  p->tiles = body == Body::kUpdates ? 0 : patch_tiles(*p);
  p->heads = body == Body::kUpdates ? 0 : patch_heads(*p);
}

}  // namespace

Body choose_body(const ConvParams& p) noexcept {
  const bool packed = channels_packed(p);
  const Number number = p.part[0].x.number;
  if (only_heads(p) && is_update(p)) return Body::kUpdates;
  if (only_heads(p)) {
    return head_form_of(p) == HeadForm::kElements ? Body::kRowsOfElements
                                                  : of_type(Body::kHeadsOfFloats, number);
  }
  if (packed && is_patches(p)) return uncut(p) ? Body::kPatches : Body::kCutPatches;
  if (packed) return of_type(Body::kRowsOfFloats, number);
  // One token has no neighbours, so its strides say nothing; only rows mark kinds.
  const bool lines = p.T > 1 && p.row_kinds == nullptr && all_parts(p, [](const ChannelPart& c) {
                       return c.x.token_stride == 1 && c.out.token_stride == 1;
                     });
  return lines ? body_of_lines(p) : Body::kRowsOfElements;
}

void plan_launch(Body body, int multiprocessors, ConvParams* p) noexcept {
  plan_heads(p);
  if (is_whole(body)) return plan_whole(body, p);
  const int64_t warps_wanted = int64_t{multiprocessors} * 24;
  const bool lines = body == Body::kLinesOfBfloats || body == Body::kLinesOfHalves ||
                     body == Body::kLinesOfElements;
  const bool elements = body == Body::kRowsOfElements || body == Body::kLinesOfElements;
  const int64_t pack = elements ? 1 : pack_of(p->part[0].x.number);
  if (lines) {
    plan_lines(pack, warps_wanted, p);
  } else {
    p->channel_warps = parts_of(p->D, 32 * pack);
    plan_rows(warps_wanted, p);
  }
  p->tiles = only_heads(*p) ? 0 : parts_of(p->T, p->tile_tokens);
  p->warps = p->heads + p->B * p->tiles * p->channel_warps;
}

UpdateForm update_form_of(const ConvParams& p) noexcept {
  const bool indexed = p.read_slots.data != nullptr || p.write_slots.data != nullptr ||
                       p.has_initial_state != nullptr || p.initial.data == nullptr ||
                       p.final.data == nullptr;
  return {p.L == kMaxWidth, head_form_of(p) == HeadForm::kColumnsOutside, indexed};
}

GridSize grid_of(Body body, const ConvParams& p) noexcept {
  const auto extent = [](int64_t whole, int64_t part) {
    return static_cast<uint32_t>(parts_of(whole, part));
  };
  if (body == Body::kUpdates) return {extent(p.D, 2 * kThreads), static_cast<uint32_t>(p.N), 1};
  if (!is_whole(body)) return {extent(p.warps - p.first_warp, kWarps), 1, 1};
  return {extent(p.D, kPatchChannels * kThreads), static_cast<uint32_t>(p.heads + p.tiles),
          static_cast<uint32_t>(p.B)};
}

size_t shared_bytes(Body body, const ConvParams& p) noexcept {
  return p.head_form == HeadForm::kColumnsInside && !is_whole(body) ? kStageBytes : 0;
}

}  // namespace sluice::cuda::conv1d
