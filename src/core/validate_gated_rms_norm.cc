// Validates the arguments of gated_rms_norm and of its gradients.
// SPDX-License-Identifier: Apache-2.0
#include "core/validate.hpp"

namespace sluice::core {
namespace {

/// [.., V] of rank 2 to 4 as rank 5, with leading dimensions of 1. An absent view, whose rank may be
/// anything, becomes an empty one.
Tensor to_rank5(const Tensor& t) noexcept {
  if (!present(t)) return {};
  Tensor r = t;
  r.rank = 5;
  const int pad = 5 - t.rank;
  for (int axis = 0; axis < 5; ++axis) {
    r.shape[axis] = axis < pad ? 1 : t.shape[axis - pad];
    r.stride[axis] = axis < pad ? t.stride[0] * t.shape[0] : t.stride[axis - pad];
  }
  return r;
}

/// x, z and weight of the operator or of its gradients, and `rows`: out, or its gradient. Returns
/// whether they are there.
template <class Args>
bool check_inputs(Checker& c, const Args& a, const char* rows_name, const Tensor& rows) noexcept {
  const int rank = a.x.rank;
  if (rank == 0) c.fail("x = absent, expected a view of rank 2 to 4 (required)");
  if (rank < 2 || rank > 4) c.fail("x rank = %d, expected 2 to 4", rank);
  const bool usable = c.required("x", a.x, rank, Dtypes::kFloat) &&
                      c.required("z", a.z, rank, Dtypes::kFloat) &&
                      c.required("weight", a.weight, 1, Dtypes::kFloat) &&
                      c.required(rows_name, rows, rank, Dtypes::kFloat);
  if (!usable) return false;

  c.dimension_at_least("x", a.x, rank - 1, 1, "head dimension V");
  c.same_shape("z", a.z, a.x, rank, "shape of x");
  c.same_shape(rows_name, rows, a.x, rank, "shape of x");
  c.dimension("weight", a.weight, 0, a.x.shape[rank - 1], "V of x");
  c.inner_contiguous("x", a.x);
  c.inner_contiguous("z", a.z);
  c.inner_contiguous(rows_name, rows);
  return true;
}

template <class Args>
void check_choices(Checker& c, const Args& a) noexcept {
  c.epsilon("eps", a.eps);
  check_gate_activation(c, "activation", a.activation);
  c.choice("rounding", a.rounding, 2, "0 (ROUND_ONCE) or 1 (ROUND_HF)");
  c.reserved(a.reserved);
}

/// What both operators make of the inputs.
template <class Args>
void fill(const Args& a, GatedNormProblem* p) noexcept {
  p->V = a.x.shape[a.x.rank - 1];
  p->x = to_rank5(a.x);
  p->z = to_rank5(a.z);
  p->weight = a.weight;
  p->eps = a.eps > 0 ? a.eps : 1e-6;
  p->activation = static_cast<sluice_activation>(a.activation);
  p->rounding = static_cast<sluice_norm_rounding>(a.rounding);
}

}  // namespace

void check(Checker& c, const sluice_gated_rms_norm_args& a, Depth, GatedNormProblem* p) noexcept {
  if (!check_inputs(c, a, "out", a.out)) return;
  c.writable("out", a.out);
  c.distinct("out", a.out, "z", a.z);
  if (c.ok() && a.out.data == a.x.data) {
    c.same_dtype("out", a.out, "x, whose memory it is", a.x);
    check_alias(c, "x", a.x, "out", a.out);
  }
  check_choices(c, a);
  if (c.ok()) {
    fill(a, p);
    p->out = to_rank5(a.out);
  }
}

void check(Checker& c, const sluice_gated_rms_norm_backward_args& a, Depth,
           GatedNormBackwardProblem* p) noexcept {
  if (!check_inputs(c, a, "d_out", a.d_out)) return;
  check_gradient(c, "dx", a.dx, "x", a.x, true);
  check_gradient(c, "dz", a.dz, "x", a.x, true);
  if (c.optional("dweight", a.dweight, 1, Dtypes::kFloat)) {
    c.dimension("dweight", a.dweight, 0, a.weight.shape[0], "V of x");
    c.writable("dweight", a.dweight);
  }
  check_choices(c, a);
  if (c.ok()) {  // a refused view may have any rank
    fill(a, &p->forward);
    p->d_out = to_rank5(a.d_out);
    p->dx = to_rank5(a.dx), p->dz = to_rank5(a.dz), p->dweight = a.dweight;
  }
}

}  // namespace sluice::core
