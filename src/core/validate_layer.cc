// Validates layer_prefill and layer_decode: rules of the layer's own tensors, then its parts as
// views. Both packings are views of the projections' outputs, so nothing is copied to take them
// apart.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/host_access.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;

constexpr ConvStateNames kConvNames{"conv_initial", "conv_final", "num_accepted", "ring_position"};

/// Element strides of the parts inside one projection row.
struct Parts {
  int64_t q, k, v, z;  ///< first element of each part in a qkv row (z: INTERLEAVED only)
  int64_t qk_group;    ///< stride from one key head's q to the next one's
  int64_t v_group;     ///< the same for its r value heads
  int64_t row;         ///< elements of a qkv row
};

Parts parts_of(const sluice_layer_args& a, int64_t r) noexcept {
  const int64_t K = a.head_k_dim;
  const int64_t V = a.head_v_dim;
  if (a.packing == SLUICE_PACKING_INTERLEAVED) {
    const int64_t group = 2 * K + 2 * r * V;
    return {0, K, 2 * K, 2 * K + r * V, group, group, a.num_k_heads * group};
  }
  const int64_t HK = a.num_k_heads * K;
  return {0, HK, 2 * HK, 0, K, r * V, 2 * HK + a.num_v_heads * V};
}

/// A rank 4 or 5 view that starts `first` elements into each [B,T] row of `t`.
Tensor part(const Tensor& t, int64_t first, std::initializer_list<int64_t> shape,
            std::initializer_list<int64_t> stride) noexcept {
  Tensor p = t;
  p.data = present(t) ? static_cast<std::byte*>(t.data) + first * element_size(t.dtype) : nullptr;
  p.rank = static_cast<uint16_t>(2 + shape.size());
  int axis = 2;
  for (const int64_t s : shape) p.shape[axis++] = s;
  axis = 2;
  for (const int64_t s : stride) p.stride[axis++] = s;
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

/// Slots as the convolution sees them: [N].
Tensor first_column(const Tensor& slots) noexcept {
  Tensor column = slots;
  if (present(slots)) column.rank = 1;
  return column;
}

void check_sizes(Checker& c, const sluice_layer_args& a) noexcept {
  const struct {
    const char* name;
    int64_t value;
  } sizes[] = {{"num_k_heads", a.num_k_heads},
               {"num_v_heads", a.num_v_heads},
               {"head_k_dim", a.head_k_dim},
               {"head_v_dim", a.head_v_dim}};
  for (const auto& [name, value] : sizes) {
    if (c.ok() && (value < 1 || value > (int64_t{1} << 20))) {
      c.fail("%s = %lld, expected 1 to 2^20", name, static_cast<ll>(value));
    }
  }
  if (c.ok() && a.num_v_heads % a.num_k_heads != 0) {
    c.fail("num_v_heads = %lld, expected a multiple of num_k_heads = %lld (grouped value heads)",
           static_cast<ll>(a.num_v_heads), static_cast<ll>(a.num_k_heads));
  }
}

void check_choices(Checker& c, const sluice_layer_args& a) noexcept {
  c.choice("packing", a.packing, 2, "0 (FLAT) or 1 (INTERLEAVED)");
  c.choice("scale_mode", a.scale_mode, 2, "0 (DEFAULT) or 1 (VALUE)");
  c.choice("conv_state_form", a.conv_state_form, 2, "0 (SHIFT) or 1 (RING)");
  c.choice("eigenvalues", a.eigenvalues, 2, "0 (POSITIVE) or 1 (NEGATIVE)");
  c.choice("head_map", a.head_map, 2, "0 (BLOCK) or 1 (CYCLIC)");
  c.choice("rounding", a.rounding, 3, "0 (ROUND_ONCE), 1 (ROUND_HF) or 2 (ROUND_INPUT)");
  c.choice("state_writes", a.state_writes, 3, "0 (LAST), 1 (PER_TOKEN) or 2 (NONE)");
  c.choice("implementation", a.implementation, 5, "0 to 4 (sluice_implementation)");
  c.reserved(a.reserved);
  c.epsilon("l2norm_eps", a.l2norm_eps);
  c.epsilon("norm_eps", a.norm_eps);
  if (c.ok() && a.gate_activation != SLUICE_ACTIVATION_SILU &&
      a.gate_activation != SLUICE_ACTIVATION_SIGMOID) {
    c.fail("gate_activation = %d, expected 1 (SILU) or 2 (SIGMOID)", a.gate_activation);
  }
  if (c.ok() && a.packing == SLUICE_PACKING_INTERLEAVED && a.head_map != SLUICE_HEAD_MAP_BLOCK) {
    c.fail("head_map = %d, expected 0 (packing INTERLEAVED groups value heads by key head)",
           a.head_map);
  }
  if (c.ok() && a.scale_mode == SLUICE_SCALE_VALUE && !std::isfinite(a.scale)) {
    c.fail("scale = %g, expected a finite number", a.scale);
  }
}

/// One [B,T,width] projection.
void check_projection(Checker& c, const char* name, const Tensor& t, const Tensor& qkv,
                      int64_t width, const char* what) noexcept {
  if (!c.required(name, t, 3, Dtypes::kFloat)) return;
  c.dimension(name, t, 0, qkv.shape[0], "B of qkv");
  c.dimension(name, t, 1, qkv.shape[1], "T of qkv");
  c.dimension(name, t, 2, width, what);
}

void check_output(Checker& c, const char* name, const Tensor& t,
                  const sluice_layer_args& a) noexcept {
  c.dimension(name, t, 0, a.qkv.shape[0], "B of qkv");
  c.dimension(name, t, 1, a.qkv.shape[1], "T of qkv");
  c.dimension(name, t, 2, a.num_v_heads, "HV value heads");
  c.dimension(name, t, 3, a.head_v_dim, "V");
  c.inner_contiguous(name, t);
  c.writable(name, t);
}

void check_vector(Checker& c, const char* name, const Tensor& t, int64_t size,
                  const char* what) noexcept {
  if (c.required(name, t, 1, Dtypes::kFloat)) c.dimension(name, t, 0, size, what);
}

void check_tensors(Checker& c, const sluice_layer_args& a, const Parts& parts) noexcept {
  const int64_t HV = a.num_v_heads;
  const int64_t D = 2 * a.num_k_heads * a.head_k_dim + HV * a.head_v_dim;
  if (!c.required("qkv", a.qkv, 3, Dtypes::kFloat)) return;
  c.dimension("qkv", a.qkv, 2, parts.row,
              a.packing == SLUICE_PACKING_FLAT ? "2 H K + HV V" : "2 H K + 2 HV V, INTERLEAVED");
  c.inner_contiguous("qkv", a.qkv);
  if (a.packing == SLUICE_PACKING_FLAT) {
    check_projection(c, "z", a.z, a.qkv, HV * a.head_v_dim, "HV V");
    c.inner_contiguous("z", a.z);
    check_projection(c, "b", a.b, a.qkv, HV, "HV");
    check_projection(c, "a", a.a, a.qkv, HV, "HV");
  } else {
    check_projection(c, "b", a.b, a.qkv, 2 * HV, "2 HV, INTERLEAVED");
    c.absent("z", a.z, "packing INTERLEAVED has it in qkv");
    c.absent("a", a.a, "packing INTERLEAVED has it in b");
  }
  if (c.required("conv_weight", a.conv_weight, 2, Dtypes::kFloat)) {
    c.dimension("conv_weight", a.conv_weight, 0, D, "2 H K + HV V channels");
    if (c.ok() && (a.conv_weight.shape[1] < 2 || a.conv_weight.shape[1] > 4)) {
      c.fail("conv_weight.shape[1] = %lld, expected 2, 3 or 4 (width W)",
             static_cast<ll>(a.conv_weight.shape[1]));
    }
    c.inner_contiguous("conv_weight", a.conv_weight);
  }
  if (present(a.conv_bias)) check_vector(c, "conv_bias", a.conv_bias, D, "2 H K + HV V channels");
  check_vector(c, "A_log", a.A_log, HV, "HV value heads");
  check_vector(c, "dt_bias", a.dt_bias, HV, "HV value heads");
  check_vector(c, "norm_weight", a.norm_weight, a.head_v_dim, "V");
  if (c.required("out", a.out, 4, Dtypes::kFloat)) check_output(c, "out", a.out, a);
  if (c.optional("core_out", a.core_out, 4, Dtypes::kFloat)) {
    check_output(c, "core_out", a.core_out, a);
    c.distinct("core_out", a.core_out, "out", a.out);
    c.distinct("core_out", a.core_out, "qkv", a.qkv);
  }
  c.distinct("out", a.out, "qkv", a.qkv);
  c.distinct("out", a.out, "z", a.z);
}

void fill_delta(const sluice_layer_args& a, int64_t r, const Rows& rows, DeltaRuleProblem* p) {
  const int64_t H = a.num_k_heads;
  p->rows = rows;
  p->H = H;
  p->HV = a.num_v_heads;
  p->K = a.head_k_dim;
  p->V = a.head_v_dim;
  p->r = r;
  if (a.packing == SLUICE_PACKING_INTERLEAVED) {
    const int64_t s = a.b.stride[2];
    p->beta = part(a.b, 0, {H, r}, {2 * r * s, s});
    p->gate = part(a.b, r * s, {H, r}, {2 * r * s, s});
  } else {
    p->beta = part(a.b, 0, {H, r}, {r * a.b.stride[2], a.b.stride[2]});
    p->gate = part(a.a, 0, {H, r}, {r * a.a.stride[2], a.a.stride[2]});
  }
  p->o = a.core_out;
  p->A_log = a.A_log;
  p->dt_bias = a.dt_bias;
  p->scale = a.scale_mode == SLUICE_SCALE_VALUE ? a.scale : 1.0 / std::sqrt(double(p->K));
  p->l2norm_eps = a.l2norm_eps > 0 ? a.l2norm_eps : 1e-6;
  p->gate_space = SLUICE_GATE_RAW;
  p->beta_space = SLUICE_BETA_LOGIT;
  p->beta_factor = a.eigenvalues == SLUICE_EIGENVALUES_NEGATIVE ? 2.0 : 1.0;
  p->qk_norm = SLUICE_QK_NORM_L2;
  p->head_map = static_cast<sluice_head_map>(a.head_map);
  p->state = a.state;
  // With a replay ring it is the convolution states' alone.
  if (!present(a.ring.k)) p->num_accepted = a.num_accepted;
  p->state_writes = static_cast<sluice_state_writes>(a.state_writes);
}

void fill_conv(const sluice_layer_args& a, int64_t r, const Rows& rows, const Parts& parts,
               CausalConvProblem* conv) {
  const int64_t H = a.num_k_heads;
  const int64_t HK = H * a.head_k_dim;
  const struct {
    int64_t offset, group, C, first, count;
  } slices[3] = {
      {parts.q, parts.qk_group, a.head_k_dim, 0, HK},
      {parts.k, parts.qk_group, a.head_k_dim, HK, HK},
      {parts.v, parts.v_group, r * a.head_v_dim, 2 * HK, a.num_v_heads * a.head_v_dim},
  };
  for (int i = 0; i < 3; ++i) {
    const auto& s = slices[i];
    CausalConvProblem& p = conv[i];
    p.rows = rows;
    p.G = H;
    p.C = s.C;
    p.W = a.conv_weight.shape[1];
    p.x = part(a.qkv, s.offset, {H, s.C}, {s.group, 1});
    p.weight = channels(a.conv_weight, 0, s.first, s.count);
    p.bias = channels(a.conv_bias, 0, s.first, s.count);
    p.activation = SLUICE_ACTIVATION_SILU;
    p.state.initial = channels(a.conv_initial, 1, s.first, s.count);
    p.state.final = channels(a.conv_final, 1, s.first, s.count);
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

void fill_norm(const sluice_layer_args& a, int64_t r, const Parts& parts, GatedNormProblem* p) {
  const int64_t H = a.num_k_heads;
  const int64_t V = a.head_v_dim;
  const auto heads = [&](const Tensor& t) {
    return present(t) ? part(t, 0, {H, r, V}, {r * t.stride[2], t.stride[2], 1}) : Tensor{};
  };
  p->V = V;
  p->x = heads(a.core_out);
  p->out = heads(a.out);
  p->z = a.packing == SLUICE_PACKING_INTERLEAVED
             ? part(a.qkv, parts.z, {H, r, V}, {parts.v_group, V, 1})
             : part(a.z, 0, {H, r, V}, {r * V, V, 1});
  p->weight = a.norm_weight;
  p->eps = a.norm_eps > 0 ? a.norm_eps : 1e-6;
  p->activation = static_cast<sluice_activation>(a.gate_activation);
  p->rounding = static_cast<sluice_norm_rounding>(a.rounding);
}

/// The pools as wholes, with the names that the caller knows; fill_conv() slices them afterwards.
void check_conv_pools(Checker& c, const sluice_layer_args& a, const Rows& rows, bool decode) {
  CausalConvProblem whole;
  whole.rows = rows;
  whole.G = 1;
  whole.C = 2 * a.num_k_heads * a.head_k_dim + a.num_v_heads * a.head_v_dim;
  whole.W = a.conv_weight.shape[1];
  whole.state = {a.conv_initial,
                 a.conv_final,
                 first_column(a.state.read_slots),
                 first_column(a.state.write_slots),
                 a.state.has_initial_state,
                 a.num_accepted,
                 a.ring_position,
                 a.state.pad_below,
                 a.conv_state_form,
                 0};
  if (decode && c.ok() && !present(a.conv_initial)) {
    c.fail("conv_initial = absent, expected a pool [slots, D, L] (required in decode)");
  }
  check_conv_state_io(c, kConvNames, &whole);
}

/// Convolution states use column 0 of the slots, recurrent states the accepted one: a row is
/// padding by both or by neither.
void check_whole_rows_padded(Checker& c, const DeltaRuleProblem& p) noexcept {
  if (!c.ok() || !present(p.num_accepted)) return;
  for (int64_t n = 0; n < p.rows.N; ++n) {
    const int64_t column = start_column(p.num_accepted, p.state.read_slots, n);
    const int64_t first = slot_at(p.state.read_slots, n, 0);
    const int64_t accepted = slot_at(p.state.read_slots, n, column);
    if ((first < p.state.pad_below) != (accepted < p.state.pad_below)) {
      c.fail(
          "state.read_slots[%lld,%lld] = %lld, expected padding just where column 0, %lld, is "
          "(a row is padding as a whole)",
          static_cast<ll>(n), static_cast<ll>(column), static_cast<ll>(accepted),
          static_cast<ll>(first));
      return;
    }
  }
}

/// Both kinds of state are found by the same slots: past either pool is past both.
void share_slots(LayerProblem* p) noexcept {
  const auto share = [](Tensor& state, Tensor& conv) {
    if (!present(state) || !present(conv)) return;
    state.shape[0] = conv.shape[0] = std::min(state.shape[0], conv.shape[0]);
  };
  for (CausalConvProblem& conv : p->conv) {
    share(p->delta.state.initial, conv.state.initial);
    share(p->delta.state.final, conv.state.final);
  }
}

}  // namespace

Validated validate(sluice_op op, const sluice_layer_args& args, Depth depth,
                   LayerProblem* problem) noexcept {
  const bool decode = op == SLUICE_OP_LAYER_DECODE;
  Checker c(decode ? "layer_decode" : "layer_prefill");
  problem->op = op;
  sluice_layer_args a = args;
  check_sizes(c, a);
  check_choices(c, a);
  if (!decode) {
    c.absent("num_accepted", a.num_accepted, "only in layer_decode");
    c.absent("ring.k", a.ring.k, "only in layer_decode");
    if (c.ok() && a.state_writes != SLUICE_STATE_WRITE_LAST) {
      c.fail("state_writes = %d, expected 0 (LAST) in prefill", a.state_writes);
    }
  }
  if (!c.ok()) return {c.status(), c.device(), a.implementation};
  const int64_t r = a.num_v_heads / a.num_k_heads;
  const Parts parts = parts_of(a, r);
  check_tensors(c, a, parts);
  Rows rows;
  if (c.ok()) {
    check_rows(c, "qkv", a.qkv, a.cu_seqlens, decode, a.max_tokens, &rows);
    check_work(c, rows, a.num_v_heads, std::max(a.head_k_dim, a.head_v_dim));
  }
  if (decode && !present(a.conv_final) && a.state_writes != SLUICE_STATE_WRITE_NONE) {
    a.conv_final = a.conv_initial;
  }
  if (c.ok()) {
    problem->delta.op = decode ? SLUICE_OP_RECURRENT_STEP : SLUICE_OP_CHUNK_FORWARD;
    fill_delta(a, r, rows, &problem->delta);
    check_state_io(c, &problem->delta);
    check_num_accepted(c, problem->delta);
    check_ring(c, a.ring, args.state.write_slots, &problem->delta);
    check_conv_pools(c, a, rows, decode);
  }
  if (!c.ok()) return {c.status(), c.device(), a.implementation};
  a.state = problem->delta.state;  // with write_slots resolved
  fill_conv(a, r, rows, parts, problem->conv);
  fill_norm(a, r, parts, &problem->norm);
  settle(&problem->delta);
  for (CausalConvProblem& conv : problem->conv) settle(&conv);
  settle(&problem->norm);
  if (sees_contents(depth, c.device())) {
    check_delta_contents(c, problem->delta, depth);
    check_conv_contents(c, kConvNames, problem->conv[0]);
    check_whole_rows_padded(c, problem->delta);
  }
  share_slots(problem);
  return {c.status(), c.device(), a.implementation};
}

}  // namespace sluice::core
