// Validates layer_prefill and layer_decode: rules of the layer's own tensors, then its parts.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/host_access.hpp"
#include "core/layer_views.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;

/// Names that the caller knows, of q's convolution or of the only one, and of k's and v's.
constexpr ConvStateNames kConvNames[3] = {
    {"conv_initial", "conv_final", "num_accepted", "ring_position"},
    {"k_conv_initial", "k_conv_final", "num_accepted", "ring_position"},
    {"v_conv_initial", "v_conv_final", "num_accepted", "ring_position"}};

bool is_separate(const sluice_layer_args& a) noexcept {
  return a.packing == SLUICE_PACKING_SEPARATE;
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
  c.choice("packing", a.packing, 3, "0 (FLAT), 1 (INTERLEAVED) or 2 (SEPARATE)");
  c.choice("conv_state_form", a.conv_state_form, 2, "0 (SHIFT) or 1 (RING)");
  c.choice("eigenvalues", a.eigenvalues, 2, "0 (POSITIVE) or 1 (NEGATIVE)");
  c.choice("head_map", a.head_map, 2, "0 (BLOCK) or 1 (CYCLIC)");
  c.choice("rounding", a.rounding, 3, "0 (ROUND_ONCE), 1 (ROUND_HF) or 2 (ROUND_INPUT)");
  c.choice("state_writes", a.state_writes, 3, "0 (LAST), 1 (PER_TOKEN) or 2 (NONE)");
  c.reserved(a.reserved);
  c.epsilon("l2norm_eps", a.l2norm_eps);
  c.epsilon("norm_eps", a.norm_eps);
  check_gate_activation(c, "gate_activation", a.gate_activation);
  if (c.ok() && a.packing == SLUICE_PACKING_INTERLEAVED && a.head_map != SLUICE_HEAD_MAP_BLOCK) {
    c.fail("head_map = %d, expected 0 (packing INTERLEAVED groups value heads by key head)",
           a.head_map);
  }
  if (c.ok() && !(std::isfinite(a.gate_lower_bound) && a.gate_lower_bound <= 0)) {
    c.fail("gate_lower_bound = %g, expected a finite number < 0, or 0 (gates without a bound)",
           a.gate_lower_bound);
  }
  check_scale(c, a.scale_mode, a.scale, a.head_k_dim);
}

}  // namespace

void check_layer_numbers(Checker& c, const sluice_layer_args& a) noexcept {
  check_sizes(c, a);
  check_choices(c, a);
}

namespace {

/// One [B,T,width] projection.
void check_projection(Checker& c, const char* name, const Tensor& t, const Tensor& qkv,
                      int64_t width, const char* what) noexcept {
  if (!c.required(name, t, 3, Dtypes::kFloat)) return;
  c.dimension(name, t, 0, qkv.shape[0], "B of qkv");
  c.dimension(name, t, 1, qkv.shape[1], "T of qkv");
  c.dimension(name, t, 2, width, what);
}

void check_vector(Checker& c, const char* name, const Tensor& t, int64_t size,
                  const char* what) noexcept {
  if (c.required(name, t, 1, Dtypes::kFloat)) c.dimension(name, t, 0, size, what);
}

/// k and v of packing SEPARATE, which look as q does: what there is of it there is of them.
void check_separate(Checker& c, const sluice_layer_args& a) noexcept {
  const struct {
    const char *x, *weight, *bias, *initial, *final, *width, *channels;
    const Tensor &initial_pool, &final_pool;
  } names[2] = {{"k", "k_conv_weight", "k_conv_bias", "k_conv_initial", "k_conv_final", "H K",
                 "H K channels", a.k_conv_initial, a.k_conv_final},
                {"v", "v_conv_weight", "v_conv_bias", "v_conv_initial", "v_conv_final", "HV V",
                 "HV V channels", a.v_conv_initial, a.v_conv_final}};
  for (int i = 0; i < 2 && c.ok(); ++i) {
    const auto& name = names[i];
    const LayerConv conv = layer_conv(a, i + 1);
    check_projection(c, name.x, conv.x, a.qkv, conv.channels, name.width);
    c.inner_contiguous(name.x, conv.x);
    c.same_dtype(name.x, conv.x, "qkv", a.qkv);
    check_conv_weights(c, name.weight, conv.weight, name.bias, conv.bias, conv.channels,
                       name.channels);
    if (!c.ok()) return;
    c.dimension(name.weight, conv.weight, 1, a.conv_weight.shape[1], "W of conv_weight");
    c.same_dtype(name.weight, conv.weight, "conv_weight", a.conv_weight);
    const struct {
      const char *name, *of_q;
      const Tensor &mine, &others;
    } pairs[] = {{name.bias, "conv_bias", conv.bias, a.conv_bias},
                 {name.initial, "conv_initial", name.initial_pool, a.conv_initial},
                 {name.final, "conv_final", name.final_pool, a.conv_final}};
    if (present(conv.bias) && present(a.conv_bias)) {
      c.same_dtype(name.bias, conv.bias, "conv_bias", a.conv_bias);
    }
    for (const auto& pair : pairs) {
      if (!c.ok() || present(pair.mine) == present(pair.others)) continue;
      c.fail("%s = %s, expected %s (as %s)", pair.name, present(pair.mine) ? "given" : "absent",
             present(pair.mine) ? "absent" : "a view", pair.of_q);
    }
  }
}

void check_not_separate(Checker& c, const sluice_layer_args& a) noexcept {
  const struct {
    const char* name;
    const Tensor& t;
  } views[] = {{"k", a.k},
               {"v", a.v},
               {"k_conv_weight", a.k_conv_weight},
               {"v_conv_weight", a.v_conv_weight},
               {"k_conv_bias", a.k_conv_bias},
               {"v_conv_bias", a.v_conv_bias},
               {"k_conv_initial", a.k_conv_initial},
               {"v_conv_initial", a.v_conv_initial},
               {"k_conv_final", a.k_conv_final},
               {"v_conv_final", a.v_conv_final}};
  for (const auto& [name, t] : views) c.absent(name, t, "only with packing SEPARATE");
}

/// The gates' numbers: [B,T,HV], or key-wise [B,T,HV,K].
void check_gates(Checker& c, const sluice_layer_args& a) noexcept {
  const bool key_wise = a.a.rank == 4 && a.packing != SLUICE_PACKING_INTERLEAVED;
  if (key_wise && c.required("a", a.a, 4, Dtypes::kFloat)) {
    c.dimension("a", a.a, 0, a.qkv.shape[0], "B of qkv");
    c.dimension("a", a.a, 1, a.qkv.shape[1], "T of qkv");
    c.dimension("a", a.a, 2, a.num_v_heads, "HV value heads");
    c.dimension("a", a.a, 3, a.head_k_dim, "K: key-wise gates");
    c.inner_contiguous("a", a.a);
    if (c.ok() && present(a.ring.k)) {
      c.fail("a rank = 4, expected 3 (a replay ring has one decay an entry)");
    }
  } else if (a.packing != SLUICE_PACKING_INTERLEAVED) {
    check_projection(c, "a", a.a, a.qkv, a.num_v_heads, "HV");
  }
  const int32_t space = a.gate_lower_bound < 0 ? SLUICE_GATE_RAW_BOUNDED : SLUICE_GATE_RAW;
  check_gate_space(c, {space, a.gate_lower_bound, a.A_log, a.dt_bias}, a.num_v_heads,
                   key_wise ? a.head_k_dim : 0);
}

void check_projections(Checker& c, const sluice_layer_args& a) noexcept {
  const int64_t HV = a.num_v_heads;
  constexpr const char* kWidths[] = {"2 H K + HV V", "2 H K + 2 HV V, INTERLEAVED",
                                     "H K, SEPARATE"};
  if (!c.required("qkv", a.qkv, 3, Dtypes::kFloat)) return;
  c.dimension("qkv", a.qkv, 2, qkv_width(a), kWidths[a.packing]);
  c.inner_contiguous("qkv", a.qkv);
  if (a.packing == SLUICE_PACKING_INTERLEAVED) {
    check_projection(c, "b", a.b, a.qkv, 2 * HV, "2 HV, INTERLEAVED");
    c.absent("z", a.z, "packing INTERLEAVED has it in qkv");
    c.absent("a", a.a, "packing INTERLEAVED has it in b");
    return;
  }
  check_projection(c, "z", a.z, a.qkv, HV * a.head_v_dim, "HV V");
  c.inner_contiguous("z", a.z);
  check_projection(c, "b", a.b, a.qkv, HV, "HV");
}

}  // namespace

void check_layer_inputs(Checker& c, const sluice_layer_args& a) noexcept {
  check_projections(c, a);
  check_gates(c, a);
  if (!c.ok()) return;
  const int64_t keys = a.num_k_heads * a.head_k_dim;
  const int64_t D = is_separate(a) ? keys : 2 * keys + a.num_v_heads * a.head_v_dim;
  check_conv_weights(c, "conv_weight", a.conv_weight, "conv_bias", a.conv_bias, D,
                     is_separate(a) ? "H K channels" : "2 H K + HV V channels");
  is_separate(a) ? check_separate(c, a) : check_not_separate(c, a);
  check_vector(c, "norm_weight", a.norm_weight, a.head_v_dim, "V");
}

void check_layer_rows(Checker& c, const char* name, const Tensor& t,
                      const sluice_layer_args& a) noexcept {
  c.dimension(name, t, 0, a.qkv.shape[0], "B of qkv");
  c.dimension(name, t, 1, a.qkv.shape[1], "T of qkv");
  c.dimension(name, t, 2, a.num_v_heads, "HV value heads");
  c.dimension(name, t, 3, a.head_v_dim, "V");
  c.inner_contiguous(name, t);
}

namespace {

void check_outputs(Checker& c, const sluice_layer_args& a) noexcept {
  if (!c.ok()) return;
  if (c.required("out", a.out, 4, Dtypes::kFloat)) {
    check_layer_rows(c, "out", a.out, a);
    c.writable("out", a.out);
  }
  if (c.optional("core_out", a.core_out, 4, Dtypes::kFloat)) {
    check_layer_rows(c, "core_out", a.core_out, a);
    c.writable("core_out", a.core_out);
    c.distinct("core_out", a.core_out, "out", a.out);
    c.distinct("core_out", a.core_out, "qkv", a.qkv);
  }
  c.distinct("out", a.out, "qkv", a.qkv);
  c.distinct("out", a.out, "z", a.z);
}

/// The pools as wholes, with the names that the caller knows; fill_conv() slices them afterwards.
void check_conv_pools(Checker& c, const sluice_layer_args& a, const Rows& rows,
                      bool decode) noexcept {
  if (decode && c.ok() && !present(a.conv_initial)) {
    c.fail("conv_initial = absent, expected a pool [slots, D, L] (required in decode)");
  }
  for (int i = 0; i < (is_separate(a) ? 3 : 1); ++i) {
    LayerConv conv = layer_conv(a, i);
    if (!is_separate(a)) {
      conv.initial = a.conv_initial, conv.final = a.conv_final;
      conv.channels = 2 * a.num_k_heads * a.head_k_dim + a.num_v_heads * a.head_v_dim;
    }
    CausalConvProblem whole;
    whole.rows = rows;
    whole.G = 1;
    whole.C = conv.channels;
    whole.W = a.conv_weight.shape[1];
    whole.state = {conv.initial,
                   conv.final,
                   first_column(a.state.read_slots),
                   first_column(a.state.write_slots),
                   a.state.has_initial_state,
                   a.num_accepted,
                   a.ring_position,
                   a.state.pad_below,
                   a.conv_state_form,
                   0};
    check_conv_state_io(c, kConvNames[i], &whole);
    for (const auto& [name, mine, of_q, others] :
         {std::tuple{kConvNames[i].initial, &conv.initial, "conv_initial", &a.conv_initial},
          std::tuple{kConvNames[i].final, &conv.final, "conv_final", &a.conv_final}}) {
      if (i == 0 || !c.ok() || !present(*mine)) continue;
      c.same_dtype(name, *mine, of_q, *others);
      c.dimension(name, *mine, 2, others->shape[2], "L of q's");
    }
  }
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
  // WHY twice: the last pool may be the smallest.
  for (int i = 0; i < 6; ++i) {
    share(p->delta.state.initial, p->conv[i % 3].state.initial);
    share(p->delta.state.final, p->conv[i % 3].state.final);
  }
}

}  // namespace

void check(Checker& c, const sluice_layer_args& args, Depth depth, LayerProblem* problem) noexcept {
  const bool decode = problem->op == SLUICE_OP_LAYER_DECODE;
  sluice_layer_args a = args;
  check_layer_numbers(c, a);
  if (!decode) {
    c.absent("num_accepted", a.num_accepted, "only in layer_decode");
    c.absent("ring.k", a.ring.k, "only in layer_decode");
    if (c.ok() && a.state_writes != SLUICE_STATE_WRITE_LAST) {
      c.fail("state_writes = %d, expected 0 (LAST) in prefill", a.state_writes);
    }
  }
  if (!c.ok()) return;
  check_layer_inputs(c, a);
  check_outputs(c, a);
  Rows rows;
  if (c.ok()) {
    check_rows(c, "qkv", a.qkv, a.cu_seqlens, decode, a.max_tokens, &rows);
    check_work(c, rows, a.num_v_heads, std::max(a.head_k_dim, a.head_v_dim));
  }
  if (decode && !present(a.conv_final) && a.state_writes != SLUICE_STATE_WRITE_NONE) {
    a.conv_final = a.conv_initial;
    a.k_conv_final = a.k_conv_initial;
    a.v_conv_final = a.v_conv_initial;
  }
  if (c.ok()) {
    problem->delta.op = decode ? SLUICE_OP_RECURRENT_STEP : SLUICE_OP_CHUNK_FORWARD;
    fill_delta(a, rows, &problem->delta);
    check_state_io(c, &problem->delta);
    check_num_accepted(c, problem->delta);
    check_ring(c, a.ring, args.state.write_slots, &problem->delta);
    check_conv_pools(c, a, rows, decode);
  }
  if (!c.ok()) return;
  a.state = problem->delta.state;  // with write_slots resolved
  fill_conv(a, rows, problem->conv);
  fill_norm(a, &problem->norm);
  if (sees_contents(depth, c.device())) {
    check_delta_contents(c, problem->delta, depth);
    for (int i = 0; i < (is_separate(a) ? 3 : 1); ++i) {
      check_conv_contents(c, kConvNames[i], problem->conv[i]);
    }
    check_whole_rows_padded(c, problem->delta);
  }
  problem->separate = is_separate(a);
  share_slots(problem);
}

}  // namespace sluice::core
