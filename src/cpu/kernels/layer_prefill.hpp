// Declares the whole layer between its projections, for any number of tokens, on the CPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_LAYER_PREFILL_HPP_
#define SLUICE_CPU_KERNELS_LAYER_PREFILL_HPP_

#include <cstddef>

#include "core/backend.hpp"

namespace sluice::cpu {

/// What chunk_forward supports.
Status select_layer_prefill(const core::LayerProblem& problem, core::KernelName* name) noexcept;

/// Convolved q, k and v in qkv's dtype, the core output in float32 and chunk_forward's scratch.
size_t layer_prefill_workspace(const core::LayerProblem& problem) noexcept;

/// causal_conv1d (three times), chunk_forward and the gated norm one after the other; the bits are
/// those of the operators called so, with q, k and v in qkv's dtype and the core output in float32
/// (ROUND_ONCE) or out's dtype (other roundings). They do not depend on core_out being asked for.
Status layer_prefill(const core::LayerProblem& problem, sluice_workspace workspace,
                     void* stream) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_LAYER_PREFILL_HPP_
