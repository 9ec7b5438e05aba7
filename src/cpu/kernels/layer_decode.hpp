// Declares the whole layer between its projections in one pass, for at most 16 tokens a row, on the
// CPU.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_LAYER_DECODE_HPP_
#define SLUICE_CPU_KERNELS_LAYER_DECODE_HPP_

#include <cstddef>

#include "core/backend.hpp"

namespace sluice::cpu {

/// What recurrent_step supports.
Status select_layer_decode(const core::LayerProblem& problem, core::KernelName* name) noexcept;

/// Rows of one key head's q and k and one value head's v and o, for each worker.
size_t layer_decode_workspace(const core::LayerProblem& problem) noexcept;

/// Convolution, gates, delta steps and gated norm of a (sequence, key head) while its data is in
/// cache. The bits are those of causal_conv1d, recurrent_step and gated_rms_norm called one after
/// the other, with q, k and v in qkv's dtype and the core output in float32 (ROUND_ONCE) or out's
/// dtype (other roundings). With a replay ring it is these three, one after the other.
Status layer_decode(const core::LayerProblem& problem, sluice_workspace workspace,
                    void* stream) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_LAYER_DECODE_HPP_
