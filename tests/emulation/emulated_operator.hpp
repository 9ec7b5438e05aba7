// Makes an operator of an emulated backend from a catalogue of the CUDA backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_OPERATOR_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_OPERATOR_HPP_

#include "cuda/catalogues.h"

namespace sluice::cuda {

/// Plans by the catalogue for the emulated GPU, and runs what was planned.
template <auto catalogue>
constexpr auto emulated_operator() noexcept {
  return []<class Problem>(Catalogue<Problem> (*)() noexcept) {
    return core::Operator<Problem>{
        [](const Problem& problem, core::PlanFor purpose, core::Plan* plan) noexcept {
          return plan_by(catalogue(), problem, machine_of(0), environment(), purpose, plan);
        },
        [](const Problem& problem, const core::Plan& plan, sluice_workspace workspace,
           void* stream) noexcept {
          return run_plan("emulated", problem, plan, machine_of(0), workspace.data, stream);
        }};
  }(static_cast<decltype(catalogue()) (*)() noexcept>(catalogue));
}

}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_EMULATED_OPERATOR_HPP_
