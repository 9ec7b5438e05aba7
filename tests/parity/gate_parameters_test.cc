// Measures gradients by the parameters of raw gates, A_log and dt_bias, against what rounding the inputs
// of a call to its types does to them in float64.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parity/backward_call.hpp"
#include "parity/naming.hpp"
#include "support/case_runner.hpp"

namespace sluice::check {
namespace {

/// Sums over all tokens of a call, which rounded inputs disturb by this much of their length.
double distance(const Array& found, const Array& truth) {
  return compare_whole(view_of(found), view_of(truth)).relative_l2;
}

struct RawGates {
  std::string name;
  bool key_gates;
  sluice_gate_space space;
  sluice_dtype dtype;
  int64_t size;
};
void PrintTo(const RawGates& gates, std::ostream* out) { *out << gates.name; }

class GateParameterGradients : public ::testing::TestWithParam<RawGates> {
 protected:
  static BackwardConfig config(sluice_rule rule) {
    const RawGates& gates = GetParam();
    BackwardConfig c;
    c.rule = rule, c.beta = rule == SLUICE_RULE_GATED_DELTA;
    c.H = 4, c.HV = 8, c.K = c.V = gates.size, c.qk_norm = SLUICE_QK_NORM_L2;
    c.lengths = {60, 0, 21}, c.T = 84;
    c.key_gates = gates.key_gates, c.gate_space = gates.space;
    if (gates.space == SLUICE_GATE_RAW_BOUNDED) c.gate_lower_bound = -5;
    for (const int others : {0, 1, 2, 3, 4, 7}) c.outputs[others] = false;
    return c;
  }
};

TEST_P(GateParameterGradients, ErrorIsAtMostThreeTimesThatOfRoundedInputs) {
  for (const sluice_rule rule : {SLUICE_RULE_GATED_DELTA, SLUICE_RULE_LINEAR_ATTENTION}) {
    const BackwardConfig exact = config(rule);
    BackwardConfig rounded = exact;
    rounded.io = rounded.d_o = rounded.gate = rounded.state = GetParam().dtype;
    const BackwardTensors tensors = draw_backward(exact);
    const BackwardResult truth = run_backward_on(exact, tensors, SLUICE_IMPL_REFERENCE);
    const BackwardResult model = run_backward_on(rounded, tensors, SLUICE_IMPL_REFERENCE);
    const BackwardResult found =
        run_backward_on(rounded, tensors, implementations_under_test().front());
    ASSERT_EQ(found.code, SLUICE_OK) << found.message;
    ASSERT_EQ(truth.gradients.size(), 2U) << truth.message;
    for (size_t i = 0; i < truth.gradients.size(); ++i) {
      const auto& [name, x] = truth.gradients[i];
      const double rounding = distance(model.gradients[i].second, x);
      const double error = distance(found.gradients[i].second, x);
      EXPECT_GT(rounding, 0) << "types that round nothing measure nothing";
      EXPECT_LE(error, 3 * rounding) << name << " of rule " << rule << " by " << found.kernel;
      RecordProperty(named(name, "_of_rule_", rule), named(error / rounding));
    }
  }
}

std::vector<RawGates> raw_gates(std::initializer_list<int64_t> sizes, bool key_gates) {
  std::vector<RawGates> list;
  for (const auto space : {SLUICE_GATE_RAW, SLUICE_GATE_RAW_BOUNDED}) {
    for (const sluice_dtype dtype : {kBF16, kF16}) {
      for (const int64_t size : sizes) {
        const std::string name =
            named(space == SLUICE_GATE_RAW ? "raw_" : "bounded_", dtype_name(dtype), "_", size);
        list.push_back({name, key_gates, space, dtype, size});
      }
    }
  }
  return list;
}
std::string gates_name(const ::testing::TestParamInfo<RawGates>& row) { return row.param.name; }

INSTANTIATE_TEST_SUITE_P(Scalar, GateParameterGradients,
                         ::testing::ValuesIn(raw_gates({24, 64, 128}, false)), gates_name);
INSTANTIATE_TEST_SUITE_P(KeyWise, GateParameterGradients,
                         ::testing::ValuesIn(raw_gates({24}, true)), gates_name);

}  // namespace
}  // namespace sluice::check
