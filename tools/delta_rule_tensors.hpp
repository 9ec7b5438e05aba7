// Holds the memory of a case of the delta rule, for the operators that compute it and its
// gradients.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_DELTA_RULE_TENSORS_HPP_
#define SLUICE_TOOLS_DELTA_RULE_TENSORS_HPP_

#include <vector>

#include "check/tensors.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {

inline sluice_dtype state_dtype(const io::Case& c) { return io::dlpack_type(c.state_type); }

/// [N,HV,K,V], or [N,HV,V,K] by the case's state_layout.
inline std::vector<int64_t> state_shape(const io::Case& c) {
  const bool vk = c.state_layout == SLUICE_STATE_VK;
  return {c.shape.N, c.shape.HV, vk ? c.shape.V : c.shape.K, vk ? c.shape.K : c.shape.V};
}

/// How token tensors of a case lie in memory.
inline check::Placement placement_of(const io::Case& c, const ExecuteOptions& options) {
  return options.head_first.value_or(c.head_first) ? check::Placement::kHeadFirst
                                                   : check::Placement::kDense;
}

/// What the operators read.
struct DeltaRuleInputs {
  DeltaRuleInputs(const io::CaseFile& file, const io::Case& c, const ExecuteOptions& options)
      : placement(placement_of(c, options)),
        q(options.inputs, load(file, c, "q"), placement),
        k(options.inputs, load(file, c, "k"), placement),
        v(options.inputs, load(file, c, "v"), placement),
        gate(check::kF32, load(file, c, "g"), placement),
        beta(check::kF32, load(file, c, "beta"), placement),
        A_log(check::kF32, load(file, c, "A_log")),
        dt_bias(check::kF32, load(file, c, "dt_bias")),
        initial(state_dtype(c), load(file, c, "initial_state")) {
    if (const io::TensorEntry* entry = file.find(c, "cu_seqlens"); entry != nullptr) {
      cu_seqlens = check::TestTensor::of_indices(check::kI64, io::read_integers(*entry));
    }
  }

  /// The views and options that all these operators have, but for states and cu_seqlens.
  template <class Args>
  void fill(const io::Case& c, const ExecuteOptions& options, Args* args) const {
    args->q = TensorView(q.view());
    args->k = TensorView(k.view());
    args->v = TensorView(v.view());
    args->gate = TensorView(gate.view());
    args->beta = TensorView(beta.view());
    args->A_log = TensorView(A_log.view());
    args->dt_bias = TensorView(dt_bias.view());
    core::set_options(c.options, args);
    args->implementation = options.implementation;
  }

  check::Placement placement;
  check::TestTensor q, k, v, gate, beta, A_log, dt_bias, initial, cu_seqlens;
};

/// And what those that go forward write.
struct DeltaRuleTensors : DeltaRuleInputs {
  DeltaRuleTensors(const io::CaseFile& file, const io::Case& c, const ExecuteOptions& options)
      : DeltaRuleInputs(file, c, options),
        o(options.outputs, {c.shape.B, c.shape.T, c.shape.HV, c.shape.V}, placement),
        final(state_dtype(c), state_shape(c)) {}

  template <class Args>
  void fill(const io::Case& c, const ExecuteOptions& options, Args* args) const {
    DeltaRuleInputs::fill(c, options, args);
    args->o = TensorView(o.view());
    args->state.layout = static_cast<StateLayout>(c.state_layout);
  }

  check::TestTensor o, final;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_DELTA_RULE_TENSORS_HPP_
