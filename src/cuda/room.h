// What a GPU can run at once, as far as the choice of a split asks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_ROOM_H_
#define SLUICE_CUDA_ROOM_H_

#include "cuda/machine.h"

namespace sluice::cuda {

using Clusters = ResidentClusters;

struct Room {
  int multiprocessors = 0;
  Clusters clusters{};
};

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_ROOM_H_
