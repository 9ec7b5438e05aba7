// Validates the arguments of causal_conv1d and of its gradients.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/validate.hpp"

namespace sluice::core {
namespace {

constexpr ConvStateNames kNames{"state.initial", "state.final", "state.num_accepted",
                                "state.ring_position"};

/// Orders that other libraries have, named as what they probably are.
void check_order(Checker& c, const Tensor& x, const Tensor& weight) noexcept {
  if (weight.rank == 3) {
    c.fail("weight rank = 3, expected 2 ([D,W]; of torch's Conv1d, [D,1,W], pass squeeze(1))");
  }
  const bool channels_first = x.rank == 3 && weight.rank == 2 && x.shape[2] != weight.shape[0] &&
                              x.shape[1] == weight.shape[0];
  if (c.ok() && channels_first) {
    c.fail(
        "x.shape[2] = %lld, expected D = %lld channels ([B,T,D]; of [B,D,T] pass "
        "transpose(1, 2): no copy is made)",
        static_cast<long long>(x.shape[2]), static_cast<long long>(weight.shape[0]));
  }
}

/// x, weight and bias of the operator or of its gradients, and `rows`: out, or its gradient.
/// Returns whether they are there.
template <class Args>
bool check_inputs(Checker& c, const Args& a, const char* rows_name, const Tensor& rows) noexcept {
  check_order(c, a.x, a.weight);
  const bool usable = c.required("x", a.x, 3, Dtypes::kFloat) &&
                      c.required("weight", a.weight, 2, Dtypes::kFloat) &&
                      c.required(rows_name, rows, 3, Dtypes::kFloat);
  if (!usable) return false;

  const int64_t D = a.x.shape[2];
  c.dimension_at_least("x", a.x, 2, 1, "channels D");
  check_conv_weights(c, "weight", a.weight, "bias", a.bias, D, "D channels of x");
  c.same_shape(rows_name, rows, a.x, 3, "shape of x");
  return true;
}

/// [B,T,D] as [B,T,1,D].
Tensor grouped(const Tensor& t) noexcept {
  Tensor g = t;
  g.rank = 4;
  g.shape[3] = t.shape[2];
  g.stride[3] = t.stride[2];
  g.shape[2] = 1;
  g.stride[2] = t.stride[2] * t.shape[2];
  return g;
}

/// What both operators make of the inputs.
template <class Args>
void fill(Checker& c, const Args& a, CausalConvProblem* p) noexcept {
  c.choice("activation", a.activation, 2, "0 (NONE) or 1 (SILU)");
  check_rows(c, "x", a.x, a.cu_seqlens, false, 0, &p->rows);
  p->G = 1;
  p->C = a.x.shape[2];
  p->W = a.weight.shape[1];
  p->x = grouped(a.x);
  p->weight = a.weight;
  p->bias = a.bias;
  p->activation = static_cast<sluice_activation>(a.activation);
}

}  // namespace

void check(Checker& c, const sluice_causal_conv1d_args& a, Depth depth,
           CausalConvProblem* p) noexcept {
  if (!check_inputs(c, a, "out", a.out)) return;
  c.writable("out", a.out);
  c.distinct("out", a.out, "x", a.x);
  fill(c, a, p);
  p->out = grouped(a.out);
  p->state = a.state;
  check_conv_state_io(c, kNames, p);
  check_work(c, p->rows, p->C, std::max(p->W, p->L));
  if (sees_contents(depth, c.device())) check_conv_contents(c, kNames, *p);
}

void check(Checker& c, const sluice_causal_conv1d_backward_args& a, Depth depth,
           CausalConvBackwardProblem* problem) noexcept {
  CausalConvProblem& p = problem->forward;
  if (!check_inputs(c, a, "d_out", a.d_out)) return;
  fill(c, a, &p);
  check_sequence_columns(c, "initial", a.initial, &p);
  check_sequence_columns(c, "d_final", a.d_final, &p);
  check_sequence_columns(c, "dinitial", a.dinitial, &p);
  if (present(a.dinitial)) c.writable("dinitial", a.dinitial);
  check_gradient(c, "dx", a.dx, "x", a.x);
  check_gradient(c, "dweight", a.dweight, "weight", a.weight);
  if (!present(a.bias)) c.absent("dbias", a.dbias, "bias is absent");
  check_gradient(c, "dbias", a.dbias, "bias", a.bias);
  check_work(c, p.rows, p.C, std::max(p.W, p.L));
  p.state.initial = a.initial;
  problem->d_out = grouped(a.d_out), problem->d_final = a.d_final;
  problem->dx = grouped(a.dx), problem->dinitial = a.dinitial;
  problem->dweight = a.dweight, problem->dbias = a.dbias;
  if (sees_contents(depth, c.device())) check_row_contents(c, p.rows);
}

}  // namespace sluice::core
