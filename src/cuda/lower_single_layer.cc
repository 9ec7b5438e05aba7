// Layer steps of one token on whole heads: whether their kernel takes a problem, and the problem as
// it takes it.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/lower_single.h"
#include "cuda/select_decode.h"

namespace sluice::cuda {
namespace {

using core::CausalConvProblem, core::DeltaRuleProblem, core::LayerProblem, core::present;
using core::Tensor;
using decode::SingleLayerParams;

bool even(int64_t x) noexcept { return x % 2 == 0; }

bool aligned(const void* data, size_t bytes) noexcept {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

/// Whether two neighbouring channels' inputs are one aligned word, their weights four.
bool has_pairs(const CausalConvProblem& part) noexcept {
  const Tensor &x = part.x, &weight = part.weight;
  bool words = x.dtype.bits == 16 && x.stride[3] == 1 && aligned(x.data, 4);
  for (int axis = 0; axis < 3; ++axis)
    words = words && (x.shape[axis] <= 1 || even(x.stride[axis]));
  return words && even(part.C) && part.W == 4 &&
         number_type(weight.dtype) == number_type(x.dtype) && weight.stride[0] == 4 &&
         weight.stride[1] == 1 && aligned(weight.data, 16);
}

/// The same of states; `inside`: their columns are neighbours in memory, else their channels are.
bool has_pairs(const Tensor& pool, const Tensor& x, bool inside) noexcept {
  if (!present(pool)) return true;
  const int64_t L = pool.shape[2];
  const bool words = inside ? pool.stride[2] == 1 && pool.stride[1] == L
                            : pool.stride[1] == 1 && even(pool.stride[2]);
  return words && (L == 3 || L == 4) && aligned(pool.data, 4) &&
         number_type(pool.dtype) == number_type(x.dtype) &&
         (pool.shape[0] <= 1 || even(pool.stride[0])) && pool.shape[0] <= INT32_MAX;
}

bool all_have(const CausalConvProblem (&parts)[3], bool inside) noexcept {
  for (const CausalConvProblem& part : parts) {
    if (!has_pairs(part.state.initial, part.x, inside) ||
        !has_pairs(part.state.final, part.x, inside)) {
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
  const device::Number number = number_type(p.conv[0].x.dtype);
  for (const CausalConvProblem& part : p.conv) {
    if (present(part.bias) || number_type(part.x.dtype) != number || !has_strides(part.x) ||
        !is_beside(part.state.initial, p.delta.state.initial) ||
        !is_beside(part.state.final, p.delta.state.final)) {
      return false;
    }
  }
  return true;
}

/// Rows of z, out and the core output: four numbers are one access.
bool takes_norm(const LayerProblem& p) noexcept {
  constexpr int64_t kAligned = 8;
  const device::Number number = number_type(p.conv[0].x.dtype);
  for (const Tensor* t : {&p.norm.z, &p.norm.out, &p.delta.o}) {
    if (t == &p.delta.o && !present(*t)) continue;
    if (!has_rows(*t, kAligned) || number_type(t->dtype) != number) return false;
  }
  return p.norm.weight.stride[0] == 1;
}

decode::SingleConvPart part_of(const CausalConvProblem& part) noexcept {
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

bool takes_single(const LayerProblem& p) noexcept {
  const DeltaRuleProblem& d = p.delta;
  return takes_common(d) && d.r <= decode::kMaxSingleHeads && d.qk_norm == SLUICE_QK_NORM_L2 &&
         d.rule == SLUICE_RULE_GATED_DELTA &&
         gate_form(d) == decode::SingleLayerParams::gate_form &&
         beta_form(d) == decode::SingleLayerParams::beta_form && takes_parts(p) && takes_norm(p) &&
         decode::has_single(single_kind(p)) && pair_layout(p) != PairLayout::kNone;
}

decode::SingleKind single_kind(const LayerProblem& p) noexcept {
  return {state_number(p.delta), number_type(p.conv[0].x.dtype), decode::SingleCut::kWide};
}

SingleLayerParams lower_single(const LayerProblem& p, int multiprocessors) noexcept {
  SingleLayerParams out{};
  lower_common(p.delta, &out);
  // PERF measured, docs/kernels/decode.md
  out.keeps = out.keeps && out.heads > static_cast<uint32_t>(multiprocessors);
  lower_parts(p, &out);
  lower_norm(p.norm, &out);
  return out;
}

}  // namespace sluice::cuda
