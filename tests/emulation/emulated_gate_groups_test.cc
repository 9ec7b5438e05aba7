// Measures that gradients of the rule are the same, bit for bit, where gates and write strengths lie
// by key head, as packing INTERLEAVED has them, on the emulated kernels.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "check/array.hpp"
#include "check/generate.hpp"
#include "core/backend.hpp"
#include "core/dense_view.hpp"

namespace sluice::cuda {
namespace {

constexpr int64_t kT = 70, kH = 2, kHV = 6, kR = kHV / kH, kSize = 16;
constexpr sluice_dtype kFloat{2, 32};

struct Floats {
  std::vector<float> values;

  explicit Floats(int64_t count, uint64_t seed = 0) : values(static_cast<size_t>(count)) {
    if (seed == 0) return;
    const check::Array normal = check::make_normal({count}, seed);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(normal.values[i]);
  }
  core::Tensor view(std::initializer_list<int64_t> shape) {
    core::Tensor t = core::dense_view(values.data(), kFloat, shape);
    t.device = {SLUICE_DEVICE_CUDA, 0};
    return t;
  }
};

/// [1,T,H,r] in rows of `group` numbers a key head, from `first` on.
core::Tensor heads(Floats& rows, int64_t group, int64_t first) {
  core::Tensor t = rows.view({1, kT, kH, group});
  t.data = rows.values.data() + first;
  t.shape[3] = kR;
  return t;
}

/// Numbers of [T,HV] where they lie by key head, `group` apart.
void scatter(const Floats& from, int64_t group, int64_t first, Floats* to) {
  for (int64_t i = 0; i < kT * kHV; ++i) {
    const int64_t at = i / kR * group + first + i % kR;
    to->values[static_cast<size_t>(at)] = from.values[static_cast<size_t>(i)];
  }
}

struct Call {
  Floats q{kT * kH * kSize, 1}, k{kT * kH * kSize, 2}, v{kT * kHV * kSize, 3};
  Floats d_o{kT * kHV * kSize, 4}, A_log{kHV, 5}, dt_bias{kHV, 6};
  Floats dq{kT * kH * kSize}, dA_log{kHV};

  void run(const core::Tensor& gate, const core::Tensor& beta, const core::Tensor& dgate,
           const core::Tensor& dbeta) {
    core::ChunkBackwardProblem b;
    core::DeltaRuleProblem& p = b.forward;
    p.op = SLUICE_OP_CHUNK_BACKWARD;
    p.rows = {1, kT, 1, {}, kT};
    p.H = kH, p.HV = kHV, p.r = kR, p.K = p.V = kSize;
    p.q = q.view({1, kT, kH, kSize}), p.k = k.view({1, kT, kH, kSize});
    p.v = v.view({1, kT, kHV, kSize}), b.d_o = d_o.view({1, kT, kHV, kSize});
    p.gate = gate, p.beta = beta, b.dgate = dgate, b.dbeta = dbeta;
    p.A_log = A_log.view({kHV}), p.dt_bias = dt_bias.view({kHV});
    b.dq = dq.view({1, kT, kH, kSize}), b.dA_log = dA_log.view({kHV});
    p.gate_space = SLUICE_GATE_RAW, p.beta_space = SLUICE_BETA_LOGIT;
    p.qk_norm = SLUICE_QK_NORM_L2, p.l2norm_eps = 1e-6, p.scale = 0.25;
    const auto& op = backend().chunk_backward;
    core::Plan plan;
    ASSERT_TRUE(op.plan(b, core::PlanFor::kCall, &plan).ok());
    std::vector<std::byte> memory(plan.workspace_bytes + 256);
    const auto address = (reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256;
    ASSERT_TRUE(
        op.run(b, plan, {reinterpret_cast<void*>(address), plan.workspace_bytes}, nullptr).ok());
  }
};

TEST(EmulatedGateGroups, HaveTheBitsOfRowsOfHeads) {
  Floats gate(kT * kHV, 7), beta(kT * kHV, 8), dgate(kT * kHV), dbeta(kT * kHV);
  Call rows, groups;
  rows.run(heads(gate, kR, 0), heads(beta, kR, 0), heads(dgate, kR, 0), heads(dbeta, kR, 0));
  Floats both(2 * kT * kHV), expected(2 * kT * kHV), found(2 * kT * kHV);
  scatter(beta, 2 * kR, 0, &both), scatter(gate, 2 * kR, kR, &both);
  groups.run(heads(both, 2 * kR, kR), heads(both, 2 * kR, 0), heads(found, 2 * kR, kR),
             heads(found, 2 * kR, 0));
  scatter(dbeta, 2 * kR, 0, &expected), scatter(dgate, 2 * kR, kR, &expected);
  EXPECT_EQ(found.values, expected.values);
  EXPECT_EQ(groups.dq.values, rows.dq.values);
  EXPECT_EQ(groups.dA_log.values, rows.dA_log.values);
  EXPECT_NE(rows.dA_log.values[0], 0.0f);
}

}  // namespace
}  // namespace sluice::cuda
