// Declares the rows of decode's catalogues, each written beside its family's lowering.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_ROWS_H_
#define SLUICE_CUDA_DECODE_ROWS_H_

#include "cuda/catalogue.h"
#include "cuda/decode/plan_grid.h"

namespace sluice::cuda::decode {

using core::DeltaRuleProblem, core::LayerProblem;

/// One token of every sequence on heads of 128 x 128, as models decode.
extern const Kernel<DeltaRuleProblem> kSingleStep;
extern const Kernel<LayerProblem> kSingleLayer;
/// Any step whose states are read four numbers at a time, and layers whose states are not.
extern const Kernel<DeltaRuleProblem> kAnyStep;
extern const Kernel<LayerProblem> kAnyLayer, kLayerByElement;
/// Steps with a replay ring: as models have it, and any.
extern const Kernel<DeltaRuleProblem> kReplayModel, kReplayStep;
extern const Kernel<LayerProblem> kReplayLayer;

/// A launch of a kernel for any case, with a replay ring or without.
inline LaunchShape shape_of(const DeltaRuleProblem& p, const Work& work, const Grid& grid,
                            size_t shared_bytes) noexcept {
  const auto ctas = static_cast<unsigned>(grid.ctas);
  return {{ctas, static_cast<unsigned>(p.H), static_cast<unsigned>(p.rows.N)},
          static_cast<unsigned>(32 * warps_of(rounded_k(work.K, work.by_element))),
          shared_bytes,
          work.layer ? ctas : 1};
}

/// What the kernel for any case takes, and its replay form takes no more, but for addresses.
Status check_any_step(const DeltaRuleProblem& p, const Machine& machine) noexcept;
/// @param by_element states are not read four numbers at a time
Status check_any_layer(const LayerProblem& p, const Machine& machine, bool by_element) noexcept;
/// Whether four numbers of a state are one access, but for addresses; and by addresses.
Status check_vectors(const DeltaRuleProblem& p) noexcept;
Status check_vector_addresses(const DeltaRuleProblem& p) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_ROWS_H_
