// Whether the decode kernel takes a problem, and the problem as the kernel takes it: no CUDA calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_SELECT_DECODE_H_
#define SLUICE_CUDA_SELECT_DECODE_H_

#include "core/backend.hpp"
#include "cuda/kernels/decode/ring_params.h"
#include "cuda/kernels/decode/single_params.h"

namespace sluice::cuda {

/// Whether the decode kernel takes a problem, else what is supported; a layer whatever its strides
/// and addresses. capability: 10 major + minor.
Status check_decode(const core::DeltaRuleProblem& problem, int capability) noexcept;
Status check_decode(const core::LayerProblem& problem, int capability) noexcept;

/// Whether states can be read and written four numbers at a time; layers are slow where not.
bool moves_vectors(const core::DeltaRuleProblem& problem) noexcept;

/// Static storage; single_name(): of what takes_single() accepts.
core::KernelName single_name(const core::DeltaRuleProblem& problem) noexcept;
core::KernelName single_name(const core::LayerProblem& problem) noexcept;
core::KernelName decode_name(const core::DeltaRuleProblem& problem) noexcept;
core::KernelName decode_name(const core::LayerProblem& problem) noexcept;

/// multiprocessors: of the GPU; only how the launch is cut up depends on it.
decode::DecodeParams lower_decode(const core::DeltaRuleProblem& problem,
                                  int multiprocessors) noexcept;
decode::DecodeParams lower_decode(const core::LayerProblem& problem, int multiprocessors) noexcept;

/// Whether the kernel of single tokens takes a problem; check_decode() accepts it then.
bool takes_single(const core::DeltaRuleProblem& problem) noexcept;
decode::SingleKind single_kind(const core::DeltaRuleProblem& problem, int multiprocessors) noexcept;
decode::SingleParams lower_single(const core::DeltaRuleProblem& problem,
                                  int multiprocessors) noexcept;

/// Where the words of a layer's convolution states lie, of those that conv_pairs.cuh takes.
enum class PairLayout { kNone, kColumnsInside, kChannelsInside };
PairLayout pair_layout(const core::LayerProblem& problem) noexcept;

bool takes_single(const core::LayerProblem& problem) noexcept;
decode::SingleKind single_kind(const core::LayerProblem& problem) noexcept;
decode::SingleLayerParams lower_single(const core::LayerProblem& problem,
                                       int multiprocessors) noexcept;

/// Of problems with a replay ring; no other kernel takes them.
Status check_ring(const core::DeltaRuleProblem& problem, int capability) noexcept;
Status check_ring(const core::LayerProblem& problem, int capability) noexcept;
core::KernelName ring_name(const core::DeltaRuleProblem& problem) noexcept;
core::KernelName ring_name(const core::LayerProblem& problem) noexcept;
decode::RingParams lower_ring(const core::DeltaRuleProblem& problem, int multiprocessors) noexcept;
decode::RingParams lower_ring(const core::LayerProblem& problem, int multiprocessors) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_SELECT_DECODE_H_
