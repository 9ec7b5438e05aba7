// Cuts chunk_backward by tensor cores into waves of heads and batch entries, or windows of chunks, that
// share one workspace.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_CHUNK_BACKWARD_WAVES_H_
#define SLUICE_CUDA_CHUNK_BACKWARD_WAVES_H_

#include <cstddef>

#include "core/problem.hpp"
#include "cuda/kernels/backward/segments.h"
#include "cuda/launch.h"
#include "cuda/machine.h"

namespace sluice::cuda {

/// Waves do not depend on each other: value heads of different key heads never meet, nor do batch
/// entries but in the sums dA_log and ddt_bias.
struct Waves {
  int64_t key_heads;         ///< of a wave; the last one may have fewer
  int64_t entries;           ///< batch entries of a wave, likewise
  size_t bytes;              ///< of the workspace, whatever the addresses
  backward::SegmentCut cut;  ///< of the whole call
  int64_t window_rows;       ///< rows of a window; 0: there are none. Only of a single wave
};

/// As few waves as a workspace of 1536 bytes a token and value head allows, of at most 2 GiB unless
/// fewer heads and entries would not fill the GPU; what lies at the boundaries of a cut comes on top.
/// Key heads are cut first, and batch entries where the fewest heads are still too many. What cannot
/// be cut goes in windows, by the delta rule: one key head of a single sequence or of a pack, and those
/// of a cyclic map with states, which a pool has as neighbours, or with gates that are not evenly
/// apart. Simple GLA has what it needs there, and so have calls so short that windows do not help.
Waves choose_waves(const core::ChunkBackwardProblem& problem, const backward::SegmentCut& cut,
                   const Machine& machine) noexcept;

/// The call for the wave of that number of `key_heads` key heads each, and for their value heads:
/// neighbours, of cyclic head maps every (H / key_heads)th, of which H is then a multiple.
core::ChunkBackwardProblem heads_of_wave(const core::ChunkBackwardProblem& problem, int64_t number,
                                         int64_t key_heads) noexcept;

/// The call for batch entries first..first + count, but for the sums over all entries.
core::ChunkBackwardProblem entries_of_wave(const core::ChunkBackwardProblem& problem, int64_t first,
                                           int64_t count) noexcept;

/// A window by its number, without what lies at its borders. None, if waves have none.
backward::Window window_of(const Waves& waves, int64_t number) noexcept;

/// The cut of so many of the B batch entries that `cut` is of.
backward::SegmentCut cut_of_wave(backward::SegmentCut cut, int64_t B, int64_t entries) noexcept;

/// A call of one wave that has windows, but for dA_log and ddt_bias, whose parts it leaves. States are
/// brought from the first window to the last, then each window is computed, from the last to the first:
/// its states once more, gradients of states, gradients by chunk. States of borders are float32, as
/// chains have them in registers: the same bits as without windows.
void launch_windows(const core::ChunkBackwardProblem& problem, const Waves& waves, void* memory,
                    Launcher& launcher) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_CHUNK_BACKWARD_WAVES_H_
