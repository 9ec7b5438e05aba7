// Chooses the convolution kernel of a form and how its work is cut, and the form of the gradients. Host code,
// tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/conv1d/launch.h"

namespace sluice::cuda::conv1d {
namespace {

constexpr int64_t kPack = 8;           ///< 16-bit numbers of 16 bytes
constexpr int64_t kMaxExtent = 65535;  ///< of a grid's second and third dimension

int64_t parts_of(int64_t whole, int64_t part) noexcept { return (whole + part - 1) / part; }

bool aligned(const void* data, int64_t bytes = 16) noexcept {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

/// Whether numbers of a type of 16 bits are packs along an axis, tokens or channels.
bool in_packs(const TokenChannels& t, Number type, int64_t TokenChannels::* along,
              int64_t pack) noexcept {
  constexpr int64_t TokenChannels::* kStrides[] = {
      &TokenChannels::batch_stride, &TokenChannels::token_stride, &TokenChannels::group_stride,
      &TokenChannels::channel_stride};
  return t.number == type && aligned(t.data, 2 * pack) &&
         std::ranges::all_of(kStrides, [&](auto stride) {
           return stride == along ? t.*stride == 1 : t.*stride % pack == 0;
         });
}

/// Whether x and out of all parts are.
/// @param channels that must not be of two groups
bool in_packs(const ConvParams& p, int64_t TokenChannels::* along, int64_t channels) noexcept {
  const Number type = p.part[0].x.number;
  return type != Number::kFloat32 &&
         std::all_of(p.part, p.part + p.parts, [&](const ChannelPart& part) {
           return part.C % channels == 0 && in_packs(part.x, type, along, kPack) &&
                  in_packs(part.out, type, along, kPack);
         });
}

/// Without packing, W - 1 tokens are the head's. A layer's row kinds are said by other threads.
bool only_heads(const ConvParams& p) noexcept {
  return p.cu_seqlens.data == nullptr && p.T < p.W && p.row_kinds == nullptr;
}

StateOrder state_order_of(const ConvParams& p) noexcept {
  const auto both = [&](auto test) {
    return (p.initial.data == nullptr || test(p.initial)) &&
           (p.final.data == nullptr || test(p.final));
  };
  const bool packed =
      p.num_accepted.data == nullptr && p.L <= kMaxWidth && both([&](const ConvPool& pool) {
        return pool.number == p.part[0].x.number && aligned(pool.data) &&
               pool.slot_stride % kPack == 0;
      });
  if (!packed) return StateOrder::kAny;
  const bool outside = both([](const ConvPool& pool) {
    return pool.channel_stride == 1 && pool.column_stride % kPack == 0;
  });
  if (outside) return StateOrder::kColumnsOutside;
  const bool inside = !p.ring && p.L >= 3 && both([&](const ConvPool& pool) {
    return pool.column_stride == 1 && pool.channel_stride == p.L;
  });
  return inside ? StateOrder::kColumnsInside : StateOrder::kAny;
}

/// What models have: weights and bias in x's type or both in float32, W = 4, and no state, or three or
/// four columns in an order that pairs of channels are moved in.
bool in_form_of_models(const ConvParams& p) noexcept {
  const Number weights = p.weight.number;
  const bool bias_fits = p.bias.data == nullptr ||
                         (p.bias.number == weights && p.bias.stride == 1 && aligned(p.bias.data));
  const bool no_state = p.initial.data == nullptr && p.final.data == nullptr;
  return p.W == kMaxWidth && p.weight.stride == kMaxWidth &&
         (weights == p.part[0].x.number || weights == Number::kFloat32) && aligned(p.weight.data) &&
         bias_fits && (no_state || (p.L >= 3 && p.L <= kMaxWidth)) &&
         p.state_order != StateOrder::kAny;
}

/// What update_kernel (pairs.cuh) is for, of packs of channels: one token of each sequence.
bool is_update(const ConvParams& p) noexcept {
  return only_heads(p) && p.parts == 1 && p.part[0].C == p.D && p.T == 1 && p.N <= kMaxExtent;
}

/// The grid of a block kernel: `heads` rows of CTAs for heads, and then `blocks`.
struct BlockGrid {
  int64_t columns, heads, blocks;
};

BlockGrid block_grid(Form form, const ConvParams& p) noexcept {
  const bool packed = p.cu_seqlens.data != nullptr;
  if (form == Form::kChannelLast) {
    // Two CTAs of heads have the channels that one of blocks has.
    return {parts_of(p.D, kThreadChannels * kThreads), packed ? 2 * p.N : 2,
            parts_of(p.T, kThreadTokens)};
  }
  const int64_t columns = parts_of(p.T, 32 * kThreadTokens);
  const int64_t heads = (packed ? p.N : 1) * parts_of(p.D, 2 * kThreads);
  return {columns, parts_of(heads, columns), parts_of(p.D, kThreadChannels * kWarps)};
}

bool fits_blocks(Form form, const ConvParams& p) noexcept {
  const BlockGrid grid = block_grid(form, p);
  return p.silu && !p.ring && p.B <= kMaxExtent && grid.heads + grid.blocks <= kMaxExtent &&
         std::max(p.D, p.T) < int64_t{1} << 31;
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

Instance instance_of(Form form, const ConvParams& p) noexcept {
  if (form == Form::kChannelFirst) return kChannelFirstBlocks;
  if (form == Form::kChannelLast) return has_groups_apart(p) ? kBlocksOfGroups : kChannelLastBlocks;
  if (p.ring) return kRingUpdate;
  const bool indexed = p.read_slots.data != nullptr || p.write_slots.data != nullptr ||
                       p.has_initial_state != nullptr || p.initial.data == nullptr ||
                       p.final.data == nullptr;
  const bool outside = p.state_order == StateOrder::kColumnsOutside;
  return static_cast<Instance>(kUpdates + (p.L == kMaxWidth ? 1 : 0) + (outside ? 2 : 0) +
                               (indexed ? 4 : 0));
}

/// Longer tiles read fewer rows twice and load weights less often; shorter ones make more threads:
/// as long as leaves enough of them to each multiprocessor, within 8 (rows in flight) to 64.
GridSize plan_any(int multiprocessors, ConvParams* p) noexcept {
  constexpr int64_t kMaxCtas = int64_t{1} << 30;  // warps take further items in turn
  p->channel_warps = parts_of(p->D, 32);
  p->tile_tokens = 64;
  const auto tiles = [p] { return parts_of(p->T, p->tile_tokens); };
  while (p->tile_tokens > 8 && p->B * tiles() * p->channel_warps < int64_t{multiprocessors} * 24) {
    p->tile_tokens /= 2;
  }
  p->tiles = only_heads(*p) ? 0 : tiles();
  p->warps = p->channel_warps * (p->N + p->B * p->tiles);
  return {static_cast<unsigned>(std::min(parts_of(p->warps, kWarps), kMaxCtas))};
}

/// The fastest kernel for these strides, types and addresses.
Form choose_form(const ConvParams& p) noexcept {
  if (!in_form_of_models(p)) return Form::kAny;
  if (in_packs(p, &TokenChannels::channel_stride, kPack)) {
    if (is_update(p)) return Form::kUpdate;
    if (fits_blocks(Form::kChannelLast, p)) return Form::kChannelLast;
  }
  // Only rows of channels say what kinds they are. One token's strides say nothing.
  const bool first = p.row_kinds == nullptr && p.T > 1 && !only_heads(p) &&
                     in_packs(p, &TokenChannels::token_stride, kThreadChannels) &&
                     fits_blocks(Form::kChannelFirst, p);
  return first ? Form::kChannelFirst : Form::kAny;
}

GradientForm form_of(const ConvGradientParams& p) noexcept {
  const ChannelPart& part = p.forward.part[0];
  const Number type = part.x.number;
  const auto packs = [type](const TokenChannels& t) {
    return t.data == nullptr || in_packs(t, type, &TokenChannels::channel_stride, kSlabPack);
  };
  const bool all = type != Number::kFloat32 && part.C % kSlabPack == 0 && packs(part.x) &&
                   packs(p.d_out) && packs(p.dx);
  if (!all) return GradientForm::kAny;
  return type == Number::kBfloat16 ? GradientForm::kBfloat16 : GradientForm::kFloat16;
}

}  // namespace

void plan_launch(int multiprocessors, PlannedConv* conv) noexcept {
  ConvParams& p = conv->params;
  p.state_order = state_order_of(p);
  conv->form = choose_form(p);
  if (conv->form == Form::kAny) {
    conv->grid = plan_any(multiprocessors, &p);
    return;
  }
  conv->instance = instance_of(conv->form, p);
  if (conv->form == Form::kUpdate) {
    conv->grid = {static_cast<unsigned>(parts_of(p.D, 2 * kThreads)), static_cast<unsigned>(p.N)};
    return;
  }
  const BlockGrid grid = block_grid(conv->form, p);
  p.heads = grid.heads;
  conv->grid = {static_cast<unsigned>(grid.columns),
                static_cast<unsigned>(grid.heads + grid.blocks), static_cast<unsigned>(p.B)};
}

void plan_launch(PlannedGradients* gradients) noexcept {
  ConvGradientParams* const p = &gradients->params;
  gradients->form = form_of(*p);
  p->slab_tokens = p->forward.T >= kManyTokens ? kLongSlabTokens : kSlabTokens;
  p->slabs_each = parts_of(p->forward.T, p->slab_tokens);
  p->slabs = p->forward.B * p->slabs_each;
  const int64_t any_warps = parts_of(p->forward.D, 32);
  p->channel_warps =
      gradients->form == GradientForm::kAny ? any_warps : parts_of(p->forward.D, 32 * kSlabPack);
  const int64_t states = p->dinitial.data == nullptr ? 0 : p->forward.N;
  p->warps = (p->slabs + states) * p->channel_warps;
  p->most_warps = (p->slabs + states) * any_warps;
}

}  // namespace sluice::cuda::conv1d
