// Says how a layer's convolution states lie in pairs, and turns layer steps of one token on whole
// heads into the parameters of their kernel.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/lower.h"
#include "cuda/decode/single_views.h"

namespace sluice::cuda::decode {
namespace {

using core::CausalConvProblem, core::LayerProblem, core::present;
using core::Tensor;

/// Bytes: four numbers of a row are one access.
constexpr int64_t kRowAlignment = 8;

bool even(int64_t x) noexcept { return x % 2 == 0; }

/// Whether two neighbouring channels' inputs are one word, their weights four, but for addresses.
bool has_pairs(const CausalConvProblem& part) noexcept {
  const Tensor &x = part.x, &weight = part.weight;
  bool words = x.dtype.bits == 16 && x.stride[3] == 1;
  for (int axis = 0; axis < 3; ++axis)
    words = words && (x.shape[axis] <= 1 || even(x.stride[axis]));
  return words && even(part.C) && part.W == 4 &&
         number_type(weight.dtype) == number_type(x.dtype) && weight.stride[0] == 4 &&
         weight.stride[1] == 1;
}

/// The same of states; `inside`: their columns are neighbours in memory, else their channels are.
bool has_state_pairs(const Tensor& pool, const Tensor& x, bool inside) noexcept {
  if (!present(pool)) return true;
  const int64_t L = pool.shape[2];
  const bool words = inside ? pool.stride[2] == 1 && pool.stride[1] == L
                            : pool.stride[1] == 1 && even(pool.stride[2]);
  return words && (L == 3 || L == 4) && number_type(pool.dtype) == number_type(x.dtype) &&
         (pool.shape[0] <= 1 || even(pool.stride[0])) && pool.shape[0] <= INT32_MAX;
}

bool all_have(const CausalConvProblem (&parts)[3], bool inside) noexcept {
  for (const CausalConvProblem& part : parts) {
    if (!has_state_pairs(part.state.initial, part.x, inside) ||
        !has_state_pairs(part.state.final, part.x, inside)) {
      return false;
    }
  }
  return true;
}

/// Whether a pool of convolution states has the slots of one of states, and 32-bit strides.
bool is_beside(const Tensor& conv, const Tensor& state) noexcept {
  return present(conv) && present(state) && conv.shape[0] == state.shape[0] && has_strides(conv);
}

bool takes_parts(const LayerProblem& p) noexcept {
  const Number number = number_type(p.conv[0].x.dtype);
  for (const CausalConvProblem& part : p.conv) {
    if (present(part.bias) || number_type(part.x.dtype) != number || !has_strides(part.x) ||
        !is_beside(part.state.initial, p.delta.state.initial) ||
        !is_beside(part.state.final, p.delta.state.final)) {
      return false;
    }
  }
  return true;
}

/// Rows of z, out and the core output.
bool takes_norm(const LayerProblem& p) noexcept {
  const Number number = number_type(p.conv[0].x.dtype);
  for (const Tensor* t : {&p.norm.z, &p.norm.out, &p.delta.o}) {
    if (t == &p.delta.o && !present(*t)) continue;
    if (!has_rows(*t, kRowAlignment) || number_type(t->dtype) != number) return false;
  }
  return p.norm.weight.stride[0] == 1;
}

SingleConvPart part_of(const CausalConvProblem& part) noexcept {
  return {single_rows(part.x), static_cast<const char*>(part.weight.data),
          static_cast<char*>(part.state.initial.data), static_cast<char*>(part.state.final.data)};
}

void lower_parts(const LayerProblem& p, SingleLayerParams* out) noexcept {
  for (int i = 0; i < 3; ++i) out->part[i] = part_of(p.conv[i]);
  const Tensor &initial = p.conv[0].state.initial, &final = p.conv[0].state.final;
  constexpr uint32_t kBytes = 2, kWord = 4;
  out->L = static_cast<int32_t>(p.conv[0].L);
  out->columns_inside = pair_layout(p) == PairLayout::kColumnsInside;
  out->initial_slot_bytes = stride_of(initial, 0);
  out->final_slot_bytes = stride_of(final, 0);
  out->initial_step = out->columns_inside ? kWord : stride_of(initial, 2);
  out->final_step = out->columns_inside ? kWord : stride_of(final, 2);
  out->channel_bytes = out->columns_inside ? kBytes * static_cast<uint32_t>(out->L) : kBytes;
}

void lower_norm(const core::GatedNormProblem& p, SingleLayerParams* out) noexcept {
  out->z = single_rows(p.z);
  out->out = single_rows(p.out);
  out->z_member_bytes = stride_of(p.z, 3);
  out->out_member_bytes = stride_of(p.out, 3);
  out->norm_weight = static_cast<const char*>(p.weight.data);
  out->norm_weight_number = number_type(p.weight.dtype);
  out->eps = static_cast<float>(p.eps);
  out->silu = p.activation == SLUICE_ACTIVATION_SILU;
  out->round_input = p.rounding != SLUICE_NORM_ROUND_ONCE;
  out->round_normed = p.rounding == SLUICE_NORM_ROUND_HF;
}

}  // namespace

PairLayout pair_layout(const LayerProblem& p) noexcept {
  for (const CausalConvProblem& part : p.conv) {
    if (!has_pairs(part)) return PairLayout::kNone;
  }
  const bool plain = even(p.delta.V) && !present(p.conv[0].state.ring_position) &&
                     !present(p.conv[0].state.num_accepted);
  if (!plain) return PairLayout::kNone;
  if (all_have(p.conv, true)) return PairLayout::kColumnsInside;
  return all_have(p.conv, false) ? PairLayout::kChannelsInside : PairLayout::kNone;
}

bool has_aligned_pairs(const LayerProblem& p) noexcept {
  constexpr int64_t kWord = 4, kWeights = 16;
  for (const CausalConvProblem& part : p.conv) {
    if (!is_aligned(part.x.data, kWord) || !is_aligned(part.weight.data, kWeights) ||
        !is_aligned(part.state.initial.data, kWord) || !is_aligned(part.state.final.data, kWord)) {
      return false;
    }
  }
  return true;
}

bool has_like_pools(const LayerProblem& p) noexcept {
  const auto like = [](const Tensor& a, const Tensor& b) {
    bool alike = a.shape[0] == b.shape[0];
    for (int axis = 0; axis < 3; ++axis) {
      const bool one = a.shape[axis] <= 1 && b.shape[axis] <= 1;
      alike = alike && (one || a.stride[axis] == b.stride[axis]);
    }
    return alike;
  };
  const auto& [q, k, v] = p.conv;
  return like(q.state.initial, k.state.initial) && like(q.state.initial, v.state.initial) &&
         like(q.state.final, k.state.final) && like(q.state.final, v.state.final);
}

bool has_single_layer_parts(const LayerProblem& p) noexcept {
  return takes_parts(p) && has_like_pools(p) && takes_norm(p) &&
         pair_layout(p) != PairLayout::kNone;
}

bool has_aligned_layer_parts(const LayerProblem& p) noexcept {
  return has_aligned_pairs(p) && is_aligned(p.norm.z.data, kRowAlignment) &&
         is_aligned(p.norm.out.data, kRowAlignment) && is_aligned(p.delta.o.data, kRowAlignment);
}

SingleKeyLayerParams lower_single_layer(const LayerProblem& p, const SinglePlan& plan) noexcept {
  SingleKeyLayerParams out{};
  lower_single_common(p.delta, &out);
  out.keeps = out.keeps && plan.keeps;
  lower_parts(p, &out);
  lower_norm(p.norm, &out);
  if (!present(p.delta.key_gate)) return out;
  out.key_gate = single_key_rows(p.delta.key_gate);
  out.key_bias = single_key_rows(p.delta.dt_bias);
  out.key_form = form_of_space(p.delta);
  return out;
}

}  // namespace sluice::cuda::decode
