// What a GPU can run at once, as far as the choice of a split asks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_ROOM_H_
#define SLUICE_CUDA_ROOM_H_

#include <array>

namespace sluice::cuda {

/// Sizes of clusters that linear attention may choose.
inline constexpr std::array<int, 4> kClusterSizes{2, 4, 6, 8};

/// Clusters at once, by kClusterSizes, of CTAs that take a multiprocessor each. WHY not
/// multiprocessors / size: a cluster lies within one of the groups that multiprocessors come in.
using Clusters = std::array<int, kClusterSizes.size()>;

/// Blocks of 128 tokens of a segment that sums up all before it, that the environment may ask for.
inline constexpr std::array<int, 3> kPrefixBlocks{1, 2, 4};

struct Room {
  int multiprocessors = 0;
  Clusters clusters{};
};

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_ROOM_H_
