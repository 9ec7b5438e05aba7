// Makes a call of layer_backward: one config and one seed give the same values in either packing,
// and the same memory for every implementation that runs it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_LAYER_GRADIENT_CALL_HPP_
#define SLUICE_TESTS_PARITY_LAYER_GRADIENT_CALL_HPP_

#include "parity/gradient_call.hpp"
#include "parity/layer_call.hpp"

namespace sluice::check {

struct LayerGradientConfig {
  LayerConfig layer;  ///< states: initial ones alone, and gradients by them and by final ones
  sluice_dtype gradients = kF32;
  bool gives_core = false;  ///< core_out of the reference, rounded to layer.core
  unsigned wanted = ~0u;    ///< bits in the order of sluice.h
};

inline void PrintTo(const LayerGradientConfig& config, std::ostream* out) {
  *out << config.layer.name;
}

GradientResult run_gradients(const LayerGradientConfig& config,
                             sluice_implementation implementation, int workspace_fill = 0xff);

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_LAYER_GRADIENT_CALL_HPP_
