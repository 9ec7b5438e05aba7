// Holds the tensors of a call of gradients: inputs with values, outputs full of NaN.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_CALL_TENSORS_HPP_
#define SLUICE_TESTS_PARITY_CALL_TENSORS_HPP_

#include <utility>
#include <vector>

#include "parity/free_tensor.hpp"

namespace sluice::check {

class CallTensors {
 public:
  CallTensors(uint64_t seed, bool wild) : random_(seed * 1000003 + 29), seed_(seed), wild_(wild) {}

  sluice_tensor input(sluice_dtype dtype, const Array& values, Freedom freedom) {
    inputs_.emplace_back(dtype, values.shape, wild_ ? freedom : Freedom::kDense, &random_);
    inputs_.back().assign(values.values);
    return inputs_.back().view();
  }
  sluice_tensor input(sluice_dtype dtype, std::vector<int64_t> shape, Freedom freedom) {
    return input(dtype, make_normal(std::move(shape), ++seed_), freedom);
  }
  sluice_tensor output(sluice_dtype dtype, std::vector<int64_t> shape, Freedom freedom) {
    outputs_.emplace_back(dtype, std::move(shape), wild_ ? freedom : Freedom::kDense, &random_);
    return outputs_.back().view();
  }
  void remember() {
    for (FreeTensor& t : inputs_) t.remember();
    for (FreeTensor& t : outputs_) t.remember();
  }
  /// Inputs, and memory between the outputs' elements.
  bool intact() const {
    bool good = true;
    for (const FreeTensor& t : inputs_) good = good && t.unchanged();
    for (const FreeTensor& t : outputs_) good = good && t.gaps_unchanged();
    return good;
  }

 private:
  Random random_;
  uint64_t seed_;
  bool wild_;
  std::vector<FreeTensor> inputs_, outputs_;
};

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_CALL_TENSORS_HPP_
