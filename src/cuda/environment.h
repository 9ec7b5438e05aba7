// Reads the environment variables of the CUDA backend, once.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_ENVIRONMENT_H_
#define SLUICE_CUDA_ENVIRONMENT_H_

#include <array>
#include <cstdint>

#include "sluice/sluice.h"
#include "sluice/status.hpp"

namespace sluice::cuda {

/// Groups of kernels that SLUICE_CUDA_KERNEL chooses between.
enum class Tier {
  kFast,     ///< what is fastest where it applies: kernels of one launch, tensor cores
  kGeneric,  ///< every option, on every GPU since Ampere
  kAny,      ///< runs whatever SLUICE_CUDA_KERNEL says: the operator has no two groups
};

/// SLUICE_CUDA_KERNEL, whose word for kFast is "fused".
enum class KernelOverride { kAuto, kFast, kGeneric };

/// Blocks of 128 tokens of a segment that sums up all before it, which SLUICE_CUDA_SPLIT may name.
inline constexpr std::array<int, 3> kPrefixBlocks{1, 2, 4};

/// SLUICE_CUDA_SPLIT and SLUICE_CUDA_HISTORY: how a long sequence is cut where the caller leaves the
/// choice.
struct CutOverride {
  sluice_split split = SLUICE_SPLIT_AUTO;
  int32_t value = 0;
  int32_t cluster = 0;  ///< CTAs of a cluster, of linear attention where split is AUTO; 0: not set
  int32_t prefix = 0;   ///< blocks of a segment that sums up all before it; likewise
  bool strict = false;
};

/// What the environment asks for, or why that is not possible.
struct Environment {
  KernelOverride kernel = KernelOverride::kAuto;
  CutOverride cut;
  Status status = ok_status();

  bool allows(Tier tier) const noexcept {
    if (kernel == KernelOverride::kAuto || tier == Tier::kAny) return true;
    return (kernel == KernelOverride::kFast) == (tier == Tier::kFast);
  }
};

/// `kernel`: auto, fused, generic. `split`: auto, never, columns, length, a number of segments, or
/// cluster2, cluster4, cluster6, cluster8, prefix1, prefix2, prefix4. `history`: auto or strict.
/// Null or empty is auto; anything else makes the status kInvalidArgument.
Environment parse_environment(const char* kernel, const char* split, const char* history) noexcept;

/// The environment as it was when first asked for.
const Environment& environment() noexcept;

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_ENVIRONMENT_H_
