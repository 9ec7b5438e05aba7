// The yardstick with key-wise gates, head by head.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_KEY_YARDSTICK_HPP_
#define SLUICE_CHECK_KEY_YARDSTICK_HPP_

#include <utility>

#include "check/yardstick.hpp"

namespace sluice::check {

inline constexpr double kLowestLogGate = -128.0;

/// One value head of one sequence, one chunk after another. NUM: the scaled tiles of queries and keys
/// are rounded operands, and nothing else that scalar gates have not.
class KeyEvaluation {
 public:
  KeyEvaluation(const YardstickInputs& inputs, sluice_dtype io, Array S)
      : inputs_(inputs), io_(same_dtype(io, kF32) ? kF64 : io), stored_as_(io), S_(std::move(S)) {}

  /// Tokens begin .. begin + C - 1 of `batch`; writes their rows of o.
  void advance(int64_t batch, int64_t begin, int64_t C, int64_t h, Array* o);
  const Array& state() const noexcept { return S_; }

 private:
  void load_chunk(int64_t batch, int64_t begin, int64_t C, int64_t h);
  Array scaled(const Array& rows, bool to_end, double factor) const;
  Array products(const Array& rows) const;
  Array corrected_values(const Array& stored_S) const;

  const YardstickInputs& inputs_;
  sluice_dtype io_;         // of operands
  sluice_dtype stored_as_;  // of o
  Array S_;                 // [K,V]
  Array q_, k_;             // [C,K], normalised
  Array v_, G_, beta_;      // [C,V], [C,K], [C]
};

}  // namespace sluice::check

#endif  // SLUICE_CHECK_KEY_YARDSTICK_HPP_
