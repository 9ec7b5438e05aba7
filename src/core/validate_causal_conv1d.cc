// Validates the arguments of causal_conv1d.
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

}  // namespace

Validated validate(const sluice_causal_conv1d_args& a, Depth depth, CausalConvProblem* p) noexcept {
  Checker c("causal_conv1d");
  *p = {};
  check_order(c, a.x, a.weight);
  const bool usable = c.required("x", a.x, 3, Dtypes::kFloat) &&
                      c.required("weight", a.weight, 2, Dtypes::kFloat) &&
                      c.required("out", a.out, 3, Dtypes::kFloat);
  if (!usable) return {c.status(), c.device(), a.implementation};

  const int64_t D = a.x.shape[2];
  c.dimension_at_least("x", a.x, 2, 1, "channels D");
  c.dimension("weight", a.weight, 0, D, "D channels of x");
  if (c.ok() && (a.weight.shape[1] < 2 || a.weight.shape[1] > 4)) {
    c.fail("weight.shape[1] = %lld, expected 2, 3 or 4 (width W)",
           static_cast<long long>(a.weight.shape[1]));
  }
  c.inner_contiguous("weight", a.weight);
  if (c.optional("bias", a.bias, 1, Dtypes::kFloat)) {
    c.dimension("bias", a.bias, 0, D, "D channels of x");
  }
  for (int axis = 0; axis < 3; ++axis)
    c.dimension("out", a.out, axis, a.x.shape[axis], "shape of x");
  c.writable("out", a.out);
  c.distinct("out", a.out, "x", a.x);
  c.choice("activation", a.activation, 2, "0 (NONE) or 1 (SILU)");
  c.choice("implementation", a.implementation, 5, "0 to 4 (sluice_implementation)");
  check_rows(c, "x", a.x, a.cu_seqlens, false, 0, &p->rows);

  const auto grouped = [](const Tensor& t) {  // [B,T,D] as [B,T,1,D]
    Tensor g = t;
    g.rank = 4;
    g.shape[3] = t.shape[2];
    g.stride[3] = t.stride[2];
    g.shape[2] = 1;
    g.stride[2] = 0;
    return g;
  };
  p->G = 1;
  p->C = D;
  p->W = a.weight.shape[1];
  p->x = grouped(a.x);
  p->out = grouped(a.out);
  p->weight = a.weight;
  p->bias = a.bias;
  p->activation = static_cast<sluice_activation>(a.activation);
  p->state = a.state;
  check_conv_state_io(c, kNames, p);
  check_work(c, p->rows, D, std::max(p->W, p->L));
  if (c.ok()) settle(p);
  if (sees_contents(depth, c.device())) check_conv_contents(c, kNames, *p);
  return {c.status(), c.device(), a.implementation};
}

}  // namespace sluice::core
