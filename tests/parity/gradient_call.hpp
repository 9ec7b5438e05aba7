// Makes calls of causal_conv1d_backward and gated_rms_norm_backward in which everything that
// sluice.h leaves open can be set: one config, one seed, the same memory for every implementation.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_GRADIENT_CALL_HPP_
#define SLUICE_TESTS_PARITY_GRADIENT_CALL_HPP_

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "check/array.hpp"
#include "parity/operator_call.hpp"

namespace sluice::check {

struct ConvGradientConfig {
  std::string name;
  uint64_t seed = 1;
  int64_t B = 2, T = 5, D = 24, W = 4;
  int64_t L = 0;                      ///< columns of the states; 0 = W - 1
  std::vector<int64_t> lengths = {};  ///< not empty: packed
  int64_t rows_past_end = 0;
  bool wild = false;           ///< strides at random
  bool channel_first = false;  ///< rows as [B,D,T] in memory
  sluice_dtype io = kF32, parameters = kF32, gradients = kF32;
  bool has_bias = true, has_initial = true, has_final = true;
  unsigned wanted = 15;  ///< bits: dx, dweight, dbias, dinitial
  sluice_activation activation = SLUICE_ACTIVATION_SILU;
};

struct NormGradientConfig {
  std::string name;
  uint64_t seed = 1;
  std::vector<int64_t> shape = {5, 3, 64};
  sluice_dtype x = kF32, z = kF32, d_out = kF32, weight = kF32, gradients = kF32;
  double loudness = 1.0;  ///< of x
  sluice_activation activation = SLUICE_ACTIVATION_SILU;
  sluice_norm_rounding rounding = SLUICE_NORM_ROUND_ONCE;
  unsigned wanted = 7;  ///< bits: dx, dz, dweight
  bool wild = false;
};

inline void PrintTo(const ConvGradientConfig& config, std::ostream* out) { *out << config.name; }
inline void PrintTo(const NormGradientConfig& config, std::ostream* out) { *out << config.name; }

struct GradientResult {
  CallOutcome call;
  std::vector<std::pair<std::string, Array>> gradients;  ///< those that were wanted
  bool intact = true;  ///< inputs, and memory between the outputs' elements
};

GradientResult run_gradients(const ConvGradientConfig& config, sluice_implementation implementation,
                             int workspace_fill = 0xff);
GradientResult run_gradients(const NormGradientConfig& config, sluice_implementation implementation,
                             int workspace_fill = 0xff);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_GRADIENT_CALL_HPP_
