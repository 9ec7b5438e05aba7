// Makes an operator of an emulated backend from a catalogue of the CUDA backend.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_EMULATED_OPERATOR_HPP_
#define SLUICE_TESTS_EMULATION_EMULATED_OPERATOR_HPP_

#include <cstring>

#include "cuda/catalogues.h"

namespace sluice::cuda {

/// Backend::read_indices where device memory is the host's.
inline Status read_indices_in_place(const core::IndexSource&,
                                    std::span<const core::IndexCopy> copies, bool* read) noexcept {
  for (const auto& [from, to] : copies) {
    const int64_t columns = from->rank == 2 ? from->shape[1] : 1, width = from->dtype.bits / 8;
    for (int64_t i = 0; i < from->shape[0] * columns; ++i) {
      const int64_t column = from->rank == 2 ? i % columns : 0;
      const int64_t at = i / columns * from->stride[0] + column * from->stride[1];
      std::memcpy(static_cast<std::byte*>(to) + i * width,
                  static_cast<const std::byte*>(from->data) + at * width,
                  static_cast<size_t>(width));
    }
  }
  *read = true;
  return ok_status();
}

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
