// Declares the rows of decode's catalogues, each written beside its family's lowering.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_ROWS_H_
#define SLUICE_CUDA_DECODE_ROWS_H_

#include "cuda/catalogue.h"

namespace sluice::cuda::decode {

using core::DeltaRuleProblem, core::LayerProblem;

/// One token of every sequence on heads of 128 x 128, as models decode.
Kernel<DeltaRuleProblem> single_step_kernel() noexcept;
Kernel<LayerProblem> single_layer_kernel() noexcept;

/// Any step whose states are read four numbers at a time.
Kernel<DeltaRuleProblem> any_step_kernel() noexcept;
Kernel<LayerProblem> any_layer_kernel() noexcept;
/// Layers whose states are not.
Kernel<LayerProblem> layer_by_element_kernel() noexcept;

/// Steps with a replay ring: as models have it, and any.
Kernel<DeltaRuleProblem> replay_model_kernel() noexcept;
Kernel<DeltaRuleProblem> replay_step_kernel() noexcept;
Kernel<LayerProblem> replay_layer_kernel() noexcept;

/// What the kernel for any case takes, and its replay form takes no more, but for addresses.
Status check_any_step(const DeltaRuleProblem& p, const Machine& machine) noexcept;
/// @param by_element states are not read four numbers at a time
Status check_any_layer(const LayerProblem& p, const Machine& machine, bool by_element) noexcept;
/// Whether four numbers of a state are one access, but for addresses; and by addresses.
Status check_vectors(const DeltaRuleProblem& p) noexcept;
Status check_vector_addresses(const DeltaRuleProblem& p) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_ROWS_H_
