// Runs a case of op gradients: chunk_backward on its inputs, every gradient that it records.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <utility>

#include "tools/call.hpp"
#include "tools/delta_rule_tensors.hpp"

namespace sluice::tools {
namespace {

using check::Placement;
using check::TestTensor;

/// The gradients of a case. By activations they are stored in the outputs' dtype, by states in that
/// of the case's states, by gates, write strengths and gate parameters in float32, as these are.
class GradientOutputs {
 public:
  GradientOutputs(const io::Case& c, const DeltaRuleInputs& inputs, const ExecuteOptions& options,
                  ChunkBackwardArgs* args) {
    const io::CaseShape& s = c.shape;
    const std::vector<int64_t> keys = {s.B, s.T, s.H, s.K}, values = {s.B, s.T, s.HV, s.V},
                               heads = {s.B, s.T, s.HV};
    const Placement tokens = inputs.placement;
    const struct {
      const char* tensor;
      TensorView* view;
      sluice_dtype dtype;
      std::vector<int64_t> shape;
      Placement placement;
    } all[] = {
        {"dq", &args->dq, options.outputs, keys, tokens},
        {"dk", &args->dk, options.outputs, keys, tokens},
        {"dv", &args->dv, options.outputs, values, tokens},
        {"dg", &args->dgate, check::kF32, heads, tokens},
        {"dbeta", &args->dbeta, check::kF32, heads, tokens},
        {"dA_log", &args->dA_log, check::kF32, {s.HV}, Placement::kDense},
        {"ddt_bias", &args->ddt_bias, check::kF32, {s.HV}, Placement::kDense},
        {"d_initial_state", &args->dinitial, state_dtype(c), state_shape(c), Placement::kDense}};
    for (const auto& one : all) {
      if (std::find(c.expected.begin(), c.expected.end(), one.tensor) == c.expected.end()) continue;
      const TestTensor& memory = memory_.emplace_back(one.dtype, one.shape, one.placement);
      names_.push_back(one.tensor);
      *one.view = TensorView(memory.view());
    }
  }

  void collect(Execution* out) const {
    for (size_t i = 0; i < names_.size(); ++i) out->results[names_[i]] = memory_[i].values();
  }

 private:
  std::deque<TestTensor> memory_;
  std::vector<std::string> names_;
};

}  // namespace

Execution execute_gradients(const io::CaseFile& file, const io::Case& c,
                            const ExecuteOptions& options) {
  Execution out;
  const DeltaRuleInputs inputs(file, c, options);
  const TestTensor d_o(options.inputs, load(file, c, "d_o"), inputs.placement),
      d_final(state_dtype(c), load(file, c, "d_final_state"));
  ChunkBackwardArgs args;
  inputs.fill(c, options, &args);
  args.cu_seqlens = TensorView(inputs.cu_seqlens.view());
  args.initial = TensorView(inputs.initial.view());
  args.d_o = TensorView(d_o.view());
  args.d_final = TensorView(d_final.view());
  args.state_layout = static_cast<StateLayout>(c.state_layout);
  const GradientOutputs outputs(c, inputs, options, &args);
  if (call<ChunkBackwardArgs>({SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward}, args,
                              {"gradients", c.shape.B * c.shape.T, 0, {}}, &out)) {
    outputs.collect(&out);
  }
  return out;
}

}  // namespace sluice::tools
