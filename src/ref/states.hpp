// Reads and writes states of a pool in either layout.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_STATES_HPP_
#define SLUICE_REF_STATES_HPP_

#include "ref/access.hpp"
#include "ref/matrix.hpp"

namespace sluice::ref {

/// Element (i, j) of S in head h of a pool's slot, in either layout.
inline double load_state(const Tensor& pool, int32_t layout, int64_t slot, int64_t h, int64_t i,
                         int64_t j) noexcept {
  return layout == SLUICE_STATE_KV ? load(pool, slot, h, i, j) : load(pool, slot, h, j, i);
}

inline void store_state(const Tensor& pool, int32_t layout, int64_t slot, int64_t h,
                        Matrix S) noexcept {
  for (int64_t i = 0; i < S.rows; ++i) {
    for (int64_t j = 0; j < S.cols; ++j) {
      if (layout == SLUICE_STATE_KV) {
        store(pool, S(i, j), slot, h, i, j);
      } else {
        store(pool, S(i, j), slot, h, j, i);
      }
    }
  }
}

}  // namespace sluice::ref

#endif  // SLUICE_REF_STATES_HPP_
