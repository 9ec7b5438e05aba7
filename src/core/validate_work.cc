// Refuses problems so large that sizes computed from them would not fit 64 bits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/validate.hpp"

namespace sluice::core {

void check_work(Checker& c, const Rows& rows, int64_t heads, int64_t widest) noexcept {
  if (!c.ok()) return;
  const int64_t tokens = std::max<int64_t>(rows.B * rows.T + rows.N, 1);
  int64_t work = 0;
  bool past = __builtin_mul_overflow(tokens, heads, &work);
  past = past || __builtin_mul_overflow(work, widest, &work);
  past = past || __builtin_mul_overflow(work, widest, &work) || work >= kMostWork;
  if (past) {
    c.unsupported(
        "tokens + sequences, heads, widest dimension = %lld, %lld, %lld, expected a product (with "
        "the last one squared) below 2^52 (sizes are computed in 64 bits)",
        static_cast<long long>(tokens), static_cast<long long>(heads),
        static_cast<long long>(widest));
  }
}

}  // namespace sluice::core
