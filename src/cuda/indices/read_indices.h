// Declares how offsets and slots come to the host, for SLUICE_DEBUG=1.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_INDICES_READ_INDICES_H_
#define SLUICE_CUDA_INDICES_READ_INDICES_H_

#include <span>

#include "core/backend.hpp"

namespace sluice::cuda {

/// Backend::read_indices: one small kernel behind what the stream has, and a wait.
Status read_indices(const core::IndexSource& source, std::span<const core::IndexCopy> copies,
                    bool* read) noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_INDICES_READ_INDICES_H_
