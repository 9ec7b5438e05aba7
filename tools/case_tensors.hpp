// Holds the tensors of a call on a case: what it reads, by the names of the file, and its results.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_CASE_TENSORS_HPP_
#define SLUICE_TOOLS_CASE_TENSORS_HPP_

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "check/tensors.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {

inline sluice_dtype state_dtype(const io::Case& c) { return io::dlpack_type(c.state_type); }

/// [N,HV,K,V], or other dimensions in front of HV; [..,HV,V,K] by the case's state_layout.
inline std::vector<int64_t> state_shape(const io::Case& c, std::vector<int64_t> leading) {
  const bool vk = c.state_layout == SLUICE_STATE_VK;
  leading.insert(leading.end(),
                 {c.shape.HV, vk ? c.shape.V : c.shape.K, vk ? c.shape.K : c.shape.V});
  return leading;
}
inline std::vector<int64_t> state_shape(const io::Case& c) { return state_shape(c, {c.shape.N}); }

class CaseTensors {
 public:
  CaseTensors(const io::CaseFile& file, const io::Case& c, const ExecuteOptions& options)
      : file_(file), c_(c), options_(options) {}

  /// How token tensors lie in memory.
  check::Placement tokens() const {
    return options_.head_first.value_or(c_.head_first) ? check::Placement::kHeadFirst
                                                       : check::Placement::kDense;
  }
  /// An input; absent where the array is empty.
  TensorView keep(const check::Array& array, sluice_dtype dtype,
                  check::Placement placement = check::Placement::kDense) {
    return TensorView(memory_.emplace_back(dtype, array, placement).view());
  }
  /// An input of the file; absent where it has none of that name.
  TensorView input(const std::string& tensor, sluice_dtype dtype,
                   check::Placement placement = check::Placement::kDense) {
    return keep(load(file_, c_, tensor), dtype, placement);
  }
  TensorView cu_seqlens() {
    const io::TensorEntry* entry = file_.find(c_, "cu_seqlens");
    if (entry == nullptr) return {};
    return TensorView(
        memory_.emplace_back(check::TestTensor::of_indices(check::kI64, io::read_integers(*entry)))
            .view());
  }
  /// Room for a result, filled with NaN.
  TensorView output(const std::string& tensor, sluice_dtype dtype, std::vector<int64_t> shape,
                    check::Placement placement = check::Placement::kDense) {
    outputs_.emplace_back(tensor, &memory_.emplace_back(dtype, std::move(shape), placement));
    return TensorView(outputs_.back().second->view());
  }
  /// A result that calls go on from, filled with what it is at first.
  TensorView updated(const std::string& tensor, sluice_dtype dtype, const check::Array& array) {
    outputs_.emplace_back(tensor, &memory_.emplace_back(dtype, array));
    return TensorView(outputs_.back().second->view());
  }
  /// Adds the results by their names.
  void collect(Execution* out) const {
    for (const auto& [tensor, memory] : outputs_) out->results[tensor] = memory->values();
  }

  /// The views and options that all operators of the delta rule have, but for states and cu_seqlens.
  template <class Args>
  void fill_delta_rule(Args* args) {
    args->q = input("q", options_.inputs, tokens());
    args->k = input("k", options_.inputs, tokens());
    args->v = input("v", options_.inputs, tokens());
    args->gate = input("g", check::kF32, tokens());
    args->beta = input("beta", check::kF32, tokens());
    args->A_log = input("A_log", check::kF32);
    args->dt_bias = input("dt_bias", check::kF32);
    core::set_options(c_.options, args);
    args->implementation = options_.implementation;
  }

 private:
  const io::CaseFile& file_;
  const io::Case& c_;
  const ExecuteOptions& options_;
  std::deque<check::TestTensor> memory_;
  std::vector<std::pair<std::string, const check::TestTensor*>> outputs_;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CASE_TENSORS_HPP_
