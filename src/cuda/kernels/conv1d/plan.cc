// Chooses the convolution kernel of a form, and how its work is cut. Host code, tested without a
// GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kMostChannels = 16;  ///< of a thread of the channel-first kernel
constexpr int64_t kPack = 8;           ///< 16-bit numbers of 16 bytes
constexpr int64_t kMaxExtent = 65535;  ///< of a grid's second and third dimension

int64_t parts_of(int64_t whole, int64_t part) noexcept { return (whole + part - 1) / part; }

bool aligned(const void* data) noexcept { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// Whether x and out of all parts are of one 16-bit type, and `test` holds for both.
template <class Test>
bool all_views(const ConvParams& p, Test test) noexcept {
  const Number number = p.part[0].x.number;
  return number != Number::kFloat32 &&
         std::all_of(p.part, p.part + p.parts, [&](const ChannelPart& part) {
           return part.x.number == number && part.out.number == number && test(part.x) &&
                  test(part.out);
         });
}

/// Neighbouring channels are packs.
bool channels_packed(const ConvParams& p) noexcept {
  for (int i = 0; i < p.parts; ++i) {
    if (p.part[i].C % kPack != 0) return false;
  }
  return all_views(p, [](const TokenChannels& t) {
    return t.channel_stride == 1 && aligned(t.data) && t.batch_stride % kPack == 0 &&
           t.token_stride % kPack == 0 && t.group_stride % kPack == 0;
  });
}

/// Neighbouring tokens are. One token has no neighbours, so its strides say nothing.
bool tokens_packed(const ConvParams& p) noexcept {
  return p.T > 1 && all_views(p, [](const TokenChannels& t) {
           return t.token_stride == 1 && aligned(t.data) && t.batch_stride % kPack == 0 &&
                  t.channel_stride % kPack == 0 && t.group_stride % kPack == 0;
         });
}

/// Without packing, W - 1 tokens are the head's. A layer's row kinds are said by other threads.
bool only_heads(const ConvParams& p) noexcept {
  return p.cu_seqlens.data == nullptr && p.T < p.W && p.row_kinds == nullptr;
}

bool pool_packed(const ConvPool& pool, Number number) noexcept {
  return pool.data == nullptr ||
         (pool.number == number && aligned(pool.data) && pool.slot_stride % kPack == 0);
}

bool columns_outside(const ConvPool& pool) noexcept {
  return pool.data == nullptr || (pool.channel_stride == 1 && pool.column_stride % kPack == 0);
}

bool columns_inside(const ConvPool& pool, int64_t L) noexcept {
  return pool.data == nullptr || (pool.column_stride == 1 && pool.channel_stride == L);
}

StateOrder state_order_of(const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  const bool packed = p.num_accepted.data == nullptr && p.L <= kMaxWidth &&
                      pool_packed(p.initial, number) && pool_packed(p.final, number);
  if (!packed) return StateOrder::kAny;
  if (columns_outside(p.initial) && columns_outside(p.final)) return StateOrder::kColumnsOutside;
  const bool inside =
      !p.ring && p.L >= 3 && columns_inside(p.initial, p.L) && columns_inside(p.final, p.L);
  return inside ? StateOrder::kColumnsInside : StateOrder::kAny;
}

/// Weights and bias in x's 16-bit type, W = 4, moved by pairs of channels.
bool weights_in_pairs(const ConvParams& p) noexcept {
  const Number number = p.part[0].x.number;
  const bool bias_fits = p.bias.data == nullptr ||
                         (p.bias.number == number && p.bias.stride == 1 && aligned(p.bias.data));
  return p.W == kMaxWidth && p.weight_in_fours && p.weight_number == number && aligned(p.weight) &&
         bias_fits;
}

/// No state, or three or four columns in an order that pairs of channels are moved in.
bool states_in_pairs(const ConvParams& p) noexcept {
  const bool none = p.initial.data == nullptr && p.final.data == nullptr;
  const bool columns = p.L >= 3 && p.L <= kMaxWidth;
  return (none || columns) && state_order_of(p) != StateOrder::kAny;
}

/// What update.cuh is for: one token of each sequence, all of it in one 16-bit type and packs.
bool is_update(const ConvParams& p) noexcept {
  return p.parts == 1 && p.part[0].C == p.D && p.T == 1 && states_in_pairs(p) && p.N <= kMaxExtent;
}

int64_t token_blocks(const ConvParams& p) noexcept { return parts_of(p.T, kThreadTokens); }

/// CTAs of heads beside each other: two have the channels that one of blocks has.
int64_t head_ctas(const ConvParams& p) noexcept {
  return p.cu_seqlens.data == nullptr ? 2 : 2 * p.N;
}

/// What channel_last.cuh is for, of packs of channels.
bool is_channel_last(const ConvParams& p) noexcept {
  return p.silu && !p.ring && states_in_pairs(p) && p.B <= kMaxExtent &&
         head_ctas(p) + token_blocks(p) <= kMaxExtent && p.D < int64_t{1} << 31;
}

/// Longer tiles read fewer rows twice and load weights less often; shorter ones make more threads:
/// as long as leaves enough of them to each multiprocessor, within 8 (rows in flight) to 64.
void plan_any(int64_t warps_wanted, ConvParams* p) noexcept {
  p->channel_warps = parts_of(p->D, 32);
  p->tile_tokens = 64;
  while (p->tile_tokens > 8 &&
         p->B * parts_of(p->T, p->tile_tokens) * p->channel_warps < warps_wanted) {
    p->tile_tokens /= 2;
  }
}

/// Likewise, of channels that a thread goes through with its tokens.
void plan_channel_first(int64_t warps_wanted, ConvParams* p) noexcept {
  p->tile_tokens = static_cast<int32_t>(32 * kPack);
  const int64_t tiles = p->B * parts_of(p->T, p->tile_tokens);
  p->thread_channels = kMostChannels;
  while (p->thread_channels > 4 && tiles * parts_of(p->D, p->thread_channels) < warps_wanted) {
    p->thread_channels /= 2;
  }
  p->channel_warps = parts_of(p->D, p->thread_channels);
}

}  // namespace

Form choose_form(const ConvParams& p) noexcept {
  if (channels_packed(p) && weights_in_pairs(p)) {
    if (only_heads(p) && is_update(p)) return Form::kUpdate;
    if (is_channel_last(p)) return Form::kChannelLast;
  }
  // Only rows of channels say what kinds they are.
  const bool first = p.row_kinds == nullptr && !only_heads(p) && tokens_packed(p);
  return first ? Form::kChannelFirst : Form::kAny;
}

void plan_launch(Form form, int multiprocessors, ConvParams* p) noexcept {
  p->state_order = state_order_of(*p);
  if (form == Form::kUpdate) return;
  if (form == Form::kChannelLast) {
    p->tile_tokens = kThreadTokens;
    p->tiles = token_blocks(*p);
    p->heads = head_ctas(*p);
    return;
  }
  p->head_warps = parts_of(p->D, 32);
  p->heads = p->head_warps * p->N;
  const int64_t warps_wanted = int64_t{multiprocessors} * 24;
  form == Form::kAny ? plan_any(warps_wanted, p) : plan_channel_first(warps_wanted, p);
  p->tiles = only_heads(*p) ? 0 : parts_of(p->T, p->tile_tokens);
  p->warps = p->heads + p->B * p->tiles * p->channel_warps;
}

UpdateForm update_form_of(const ConvParams& p) noexcept {
  const bool indexed = p.read_slots.data != nullptr || p.write_slots.data != nullptr ||
                       p.has_initial_state != nullptr || p.initial.data == nullptr ||
                       p.final.data == nullptr;
  const bool outside = state_order_of(p) == StateOrder::kColumnsOutside;
  return {p.ring, p.L == kMaxWidth, outside, indexed};
}

bool has_groups_apart(const ConvParams& p) noexcept {
  for (int i = 0; i < p.parts; ++i) {
    const ChannelPart& c = p.part[i];
    const int64_t end = i + 1 < p.parts ? p.part[i + 1].first : p.D;
    const bool dense = c.x.group_stride == c.C && c.out.group_stride == c.C;
    if (!dense && end - c.first != c.C) return true;
  }
  return false;
}

GridSize grid_of(Form form, const ConvParams& p) noexcept {
  const auto extent = [](int64_t whole, int64_t part) {
    return static_cast<uint32_t>(parts_of(whole, part));
  };
  if (form == Form::kUpdate) return {extent(p.D, 2 * kThreads), static_cast<uint32_t>(p.N), 1};
  if (form != Form::kChannelLast) return {extent(p.warps - p.first_warp, kWarps), 1, 1};
  return {extent(p.D, kThreadChannels * kThreads), static_cast<uint32_t>(p.heads + p.tiles),
          static_cast<uint32_t>(p.B)};
}

}  // namespace sluice::cuda::conv1d
