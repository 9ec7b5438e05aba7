// Takes a layer's arguments apart into the views of its parts.
// SPDX-License-Identifier: Apache-2.0
#include "core/layer_views.hpp"

#include <algorithm>
#include <cmath>

#include "core/host_access.hpp"

namespace sluice::core {
namespace {

int64_t group_size(const sluice_layer_args& a) noexcept { return a.num_v_heads / a.num_k_heads; }

/// A rank 4 or 5 view that starts `first` elements into each [B,T] row of `t`. PERF strides of one
/// element become those of a dense tensor as they are written: settle_strides() would wait for them.
Tensor part_of_row(const Tensor& t, int64_t first, std::initializer_list<int64_t> shape,
                   std::initializer_list<int64_t> stride) noexcept {
  Tensor p = t;
  p.rank = static_cast<uint16_t>(2 + shape.size());
  std::copy(shape.begin(), shape.end(), p.shape + 2);
  std::copy(stride.begin(), stride.end(), p.stride + 2);
  if (!present(t)) return p;
  p.data = static_cast<std::byte*>(t.data) + first * element_size(t.dtype);
  int64_t dense = 1;
  for (int axis = p.rank - 1; axis >= 0; --axis) {
    const int64_t size = axis < 2 ? t.shape[axis] : shape.begin()[axis - 2];
    const int64_t step = axis < 2 ? t.stride[axis] : stride.begin()[axis - 2];
    p.stride[axis] = size <= 1 ? dense : step;
    dense = (size <= 1 ? dense : step) * size;
  }
  return p;
}

/// Channels first .. first + count - 1 of a tensor whose `axis` is channels.
Tensor channels(const Tensor& t, int axis, int64_t first, int64_t count) noexcept {
  if (!present(t)) return {};
  Tensor p = t;
  p.data = static_cast<std::byte*>(t.data) + first * t.stride[axis] * element_size(t.dtype);
  p.shape[axis] = count;
  return p;
}

/// Where a part lies in the rows of its projection: its first element, and from one key head's
/// channels to the next one's.
struct RowPart {
  int64_t first, group;
};

RowPart row_part(const sluice_layer_args& a, int part) noexcept {
  const int64_t K = a.head_k_dim, values = group_size(a) * a.head_v_dim;
  if (a.packing == SLUICE_PACKING_INTERLEAVED) return {part * K, 2 * K + 2 * values};
  const int64_t group = part == 2 ? values : K;
  if (a.packing == SLUICE_PACKING_SEPARATE) return {0, group};
  return {part * a.num_k_heads * K, group};
}

}  // namespace

int64_t qkv_width(const sluice_layer_args& a) noexcept {
  const int64_t keys = a.num_k_heads * a.head_k_dim, values = a.num_v_heads * a.head_v_dim;
  if (a.packing == SLUICE_PACKING_SEPARATE) return keys;
  return 2 * keys + (a.packing == SLUICE_PACKING_FLAT ? values : 2 * values);
}

Tensor first_column(const Tensor& slots) noexcept {
  Tensor column = slots;
  if (!present(slots)) return column;
  column.rank = 1;
  if (column.shape[0] <= 1) column.stride[0] = 1;
  return column;
}

LayerConv layer_conv(const sluice_layer_args& a, int part) noexcept {
  const int64_t keys = a.num_k_heads * a.head_k_dim;
  const int64_t first = part * keys, count = part == 2 ? a.num_v_heads * a.head_v_dim : keys;
  if (a.packing != SLUICE_PACKING_SEPARATE) {
    return {a.qkv,
            channels(a.conv_weight, 0, first, count),
            channels(a.conv_bias, 0, first, count),
            channels(a.conv_initial, 1, first, count),
            channels(a.conv_final, 1, first, count),
            count};
  }
  if (part == 0) {
    return {a.qkv, a.conv_weight, a.conv_bias, a.conv_initial, a.conv_final, count};
  }
  if (part == 1) {
    return {a.k, a.k_conv_weight, a.k_conv_bias, a.k_conv_initial, a.k_conv_final, count};
  }
  return {a.v, a.v_conv_weight, a.v_conv_bias, a.v_conv_initial, a.v_conv_final, count};
}

void fill_delta(const sluice_layer_args& a, const Rows& rows, DeltaRuleProblem* p) noexcept {
  const int64_t H = a.num_k_heads, r = group_size(a);
  p->rows = rows;
  p->H = H;
  p->HV = a.num_v_heads;
  p->K = a.head_k_dim;
  p->V = a.head_v_dim;
  p->r = r;
  if (a.packing == SLUICE_PACKING_INTERLEAVED) {
    const int64_t s = a.b.stride[2];
    p->beta = part_of_row(a.b, 0, {H, r}, {2 * r * s, s});
    p->gate = part_of_row(a.b, r * s, {H, r}, {2 * r * s, s});
  } else {
    p->beta = part_of_row(a.b, 0, {H, r}, {r * a.b.stride[2], a.b.stride[2]});
    if (a.a.rank == 4) {
      p->key_gate = a.a;
    } else {
      p->gate = part_of_row(a.a, 0, {H, r}, {r * a.a.stride[2], a.a.stride[2]});
    }
  }
  p->o = a.core_out;
  p->A_log = a.A_log;
  p->dt_bias = a.dt_bias;
  p->scale = a.scale_mode == SLUICE_SCALE_VALUE ? a.scale : 1.0 / std::sqrt(double(p->K));
  p->l2norm_eps = a.l2norm_eps > 0 ? a.l2norm_eps : 1e-6;
  p->gate_space = a.gate_lower_bound < 0 ? SLUICE_GATE_RAW_BOUNDED : SLUICE_GATE_RAW;
  p->gate_lower_bound = a.gate_lower_bound;
  p->beta_space = SLUICE_BETA_LOGIT;
  p->beta_factor = a.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE ? 2.0 : 1.0;
  p->qk_norm = SLUICE_QK_NORM_L2;
  p->head_map = static_cast<sluice_head_map>(a.head_map);
  p->state = a.state;
  // With a replay ring it is the convolution states' alone.
  if (!present(a.ring.k)) p->num_accepted = a.num_accepted;
  p->state_writes = static_cast<sluice_state_writes>(a.state_writes);
}

void fill_conv(const sluice_layer_args& a, const Rows& rows,
               CausalConvProblem (&conv)[3]) noexcept {
  const int64_t H = a.num_k_heads;
  for (int i = 0; i < 3; ++i) {
    const LayerConv given = layer_conv(a, i);
    const RowPart row = row_part(a, i);
    CausalConvProblem& p = conv[i];
    p.rows = rows;
    p.G = H;
    p.C = given.channels / H;
    p.W = a.conv_weight.shape[1];
    p.x = part_of_row(given.x, row.first, {H, p.C}, {row.group, 1});
    p.weight = given.weight;
    p.bias = given.bias;
    p.activation = SLUICE_ACTIVATION_SILU;
    p.state.initial = given.initial;
    p.state.final = given.final;
    p.state.read_slots = first_column(a.state.read_slots);
    p.state.write_slots = first_column(a.state.write_slots);
    p.state.has_initial_state = a.state.has_initial_state;
    p.state.num_accepted = a.num_accepted;
    p.state.ring_position = a.ring_position;
    p.state.pad_below = a.state.pad_below;
    p.state.form = a.conv_state_form;
    p.L = present(a.conv_initial) ? a.conv_initial.shape[2]
                                  : (present(a.conv_final) ? a.conv_final.shape[2] : 0);
  }
}

void fill_norm(const sluice_layer_args& a, GatedNormProblem* p) noexcept {
  const int64_t H = a.num_k_heads, V = a.head_v_dim, r = group_size(a);
  const auto heads = [&](const Tensor& t) {
    return present(t) ? part_of_row(t, 0, {H, r, V}, {r * t.stride[2], t.stride[2], 1}) : Tensor{};
  };
  p->V = V;
  p->x = heads(a.core_out);
  p->out = heads(a.out);
  const RowPart v = row_part(a, 2);
  p->z = a.packing == SLUICE_PACKING_INTERLEAVED
             ? part_of_row(a.qkv, v.first + r * V, {H, r, V}, {v.group, V, 1})
             : part_of_row(a.z, 0, {H, r, V}, {r * V, V, 1});
  p->weight = a.norm_weight;
  p->eps = a.norm_eps > 0 ? a.norm_eps : 1e-6;
  p->activation = static_cast<sluice_activation>(a.gate_activation);
  p->rounding = static_cast<sluice_norm_rounding>(a.rounding);
}

void fill_gradients(const sluice_layer_args& f, const sluice_layer_args& g, const LayerSequences& s,
                    LayerBackwardProblem* p) noexcept {
  CausalConvProblem conv[3], dconv[3];
  DeltaRuleProblem ddelta;
  GatedNormProblem dnorm;
  fill_conv(f, s.rows, conv);
  fill_conv(g, s.rows, dconv);
  for (int i = 0; i < 3; ++i) {
    conv[i].L = s.L;
    p->conv[i].forward = conv[i];
    p->conv[i].dx = dconv[i].x;
    p->conv[i].dweight = dconv[i].weight, p->conv[i].dbias = dconv[i].bias;
    p->conv[i].dinitial = dconv[i].state.initial, p->conv[i].d_final = dconv[i].state.final;
  }
  fill_delta(g, s.rows, &ddelta);
  p->delta.dgate = present(ddelta.key_gate) ? ddelta.key_gate : ddelta.gate;
  p->delta.dbeta = ddelta.beta;
  p->delta.dA_log = ddelta.A_log, p->delta.ddt_bias = ddelta.dt_bias;
  p->delta.dinitial = ddelta.state.initial, p->delta.d_final = ddelta.state.final;
  fill_norm(f, &p->norm.forward);
  fill_norm(g, &dnorm);
  p->norm.d_out = dnorm.out, p->norm.dz = dnorm.z, p->norm.dweight = dnorm.weight;
}

}  // namespace sluice::core
