// Declares a layer's parts as views of its arguments: nothing is copied to take projections apart.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_LAYER_VIEWS_HPP_
#define SLUICE_CORE_LAYER_VIEWS_HPP_

#include "core/view_rules.hpp"

namespace sluice::core {

/// What one of the three convolutions is given: views of its own, or slices of shared ones.
struct LayerConv {
  Tensor x, weight, bias, initial, final;
  int64_t channels;
};
/// Of part 0, 1, 2: q, k, v; x is the projection that holds the part.
LayerConv layer_conv(const sluice_layer_args& a, int part) noexcept;

/// Elements of a row of qkv.
int64_t qkv_width(const sluice_layer_args& a) noexcept;
/// Slots as a convolution sees them: [N].
Tensor first_column(const Tensor& slots) noexcept;

/// The rules of the numbers of a layer's arguments, and of its inputs: all but states and rows.
void check_layer_numbers(Checker& c, const sluice_layer_args& a) noexcept;
void check_layer_inputs(Checker& c, const sluice_layer_args& a) noexcept;
/// One view [B,T,HV,V].
void check_layer_rows(Checker& c, const char* name, const Tensor& t,
                      const sluice_layer_args& a) noexcept;

/// Fill the parts from arguments that were checked; `rows` are the layer's.
void fill_delta(const sluice_layer_args& a, const Rows& rows, DeltaRuleProblem* p) noexcept;
void fill_conv(const sluice_layer_args& a, const Rows& rows, CausalConvProblem (&conv)[3]) noexcept;
void fill_norm(const sluice_layer_args& a, GatedNormProblem* p) noexcept;

struct LayerSequences {
  Rows rows;
  int64_t L;  ///< columns of the convolution's states, 0 without any
};
/// All parts' gradients but problem->delta.forward.
/// @param g the gradients in the places of what they are by; out and the final states: as given
void fill_gradients(const sluice_layer_args& forward, const sluice_layer_args& g,
                    const LayerSequences& sequences, LayerBackwardProblem* problem) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_LAYER_VIEWS_HPP_
