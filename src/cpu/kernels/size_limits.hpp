// States what the delta rule kernels on the CPU can do, and the units of their scratch memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_SIZE_LIMITS_HPP_
#define SLUICE_CPU_KERNELS_SIZE_LIMITS_HPP_

#include <cstdint>

#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::cpu {

constexpr int64_t kMaxHeadDim = 256;  ///< of K and V: scratch panels stay within L1 and L2
constexpr int64_t kFloatsPerLine = 16;

constexpr int64_t round_up(int64_t value, int64_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

/// kUnsupported for head dimensions past kMaxHeadDim; K and V as the caller of `op` knows them.
inline Status check_size_limits(const core::DeltaRuleProblem& problem, const char* op,
                                const char* K_name = "k.shape[3]",
                                const char* V_name = "v.shape[3]") noexcept {
  if (problem.K <= kMaxHeadDim && problem.V <= kMaxHeadDim) return ok_status();
  const bool key = problem.K > kMaxHeadDim;
  return Status::failure(Code::kUnsupported, "%s: %s = %lld, expected at most %lld (cpu kernels)",
                         op, key ? K_name : V_name,
                         static_cast<long long>(key ? problem.K : problem.V),
                         static_cast<long long>(kMaxHeadDim));
}

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_SIZE_LIMITS_HPP_
