// Makes the yardstick's results for a case of the delta rule or of its gradients.
// SPDX-License-Identifier: Apache-2.0
#include "tools/yardsticks.hpp"

#include <utility>

#include "check/backward_yardstick.hpp"
#include "check/gdn_case.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {
namespace {

check::GdnCase gdn_case_of(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::GdnCase g;
  g.B = c.shape.B, g.T = c.shape.T, g.H = c.shape.H, g.HV = c.shape.HV;
  g.K = c.shape.K, g.V = c.shape.V;
  g.io = dtype;
  g.state_dtype = io::dlpack_type(c.state_type);
  g.options = c.options;
  if (const io::TensorEntry* entry = file.find(c, "cu_seqlens"); entry != nullptr) {
    const std::vector<int64_t> offsets = io::read_integers(*entry);
    for (size_t n = 1; n < offsets.size(); ++n) g.lengths.push_back(offsets[n] - offsets[n - 1]);
  }
  return g;
}

check::GdnInputs gdn_inputs_of(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::GdnInputs inputs;
  inputs.q = check::round_to(dtype, load(file, c, "q"));
  inputs.k = check::round_to(dtype, load(file, c, "k"));
  inputs.v = check::round_to(dtype, load(file, c, "v"));
  inputs.gate = load(file, c, "g");
  inputs.beta = load(file, c, "beta");
  inputs.A_log = load(file, c, "A_log");
  inputs.dt_bias = load(file, c, "dt_bias");
  inputs.initial = check::round_to(io::dlpack_type(c.state_type),
                                   exchange_state(c, load(file, c, "initial_state")));
  return inputs;
}

}  // namespace

Results delta_rule_yardstick(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::YardstickOutputs outputs =
      check::yardstick_of(gdn_case_of(file, c, dtype), gdn_inputs_of(file, c, dtype));
  return {{"o", std::move(outputs.o)},
          {"final_state", exchange_state(c, std::move(outputs.final_state))}};
}

Results gradient_yardstick(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  check::ResultGradients results;
  results.d_o = check::round_to(dtype, load(file, c, "d_o"));
  results.d_final = check::round_to(io::dlpack_type(c.state_type),
                                    exchange_state(c, load(file, c, "d_final_state")));
  check::InputGradients out = check::backward_yardstick_of(gdn_case_of(file, c, dtype),
                                                           gdn_inputs_of(file, c, dtype), results);
  return {{"dq", std::move(out.q)},
          {"dk", std::move(out.k)},
          {"dv", std::move(out.v)},
          {"dg", std::move(out.gate)},
          {"dbeta", std::move(out.beta)},
          {"dA_log", std::move(out.A_log)},
          {"ddt_bias", std::move(out.dt_bias)},
          {"d_initial_state", exchange_state(c, std::move(out.initial))}};
}

}  // namespace sluice::tools
