// Lays tensors out at random within what sluice.h allows: permuted, padded, reversed and broadcast
// strides, bases aligned to nothing but the element. What is not an element is NaN and watched.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_PARITY_FREE_TENSOR_HPP_
#define SLUICE_TESTS_PARITY_FREE_TENSOR_HPP_

#include <cstddef>
#include <memory>
#include <vector>

#include "check/array.hpp"
#include "check/generate.hpp"

namespace sluice::check {

/// What the operator asks of a view's strides.
enum class Freedom {
  kDense,      ///< row-major
  kSwapped,    ///< row-major with the last two dimensions exchanged
  kInput,      ///< inner stride 1, other dimensions anyhow
  kAnyInput,   ///< anyhow
  kOutput,     ///< inner stride 1, other dimensions permuted and padded
  kAnyOutput,  ///< permuted and padded
  kPool,       ///< dense inside a slot, slots padded
};

/// A random number in [0, count).
inline int64_t pick(Random* random, int64_t count) {
  return static_cast<int64_t>(random->bits() % static_cast<uint64_t>(count));
}
/// True once in `odds` times.
inline bool chance(Random* random, int64_t odds) { return pick(random, odds) == 0; }

/// A CPU tensor that owns its memory, all bytes of which start as 0xff: NaN, or -1.
class FreeTensor {
 public:
  /// Absent.
  FreeTensor() = default;
  FreeTensor(sluice_dtype dtype, std::vector<int64_t> shape, Freedom freedom, Random* random);

  const sluice_tensor& view() const noexcept { return view_; }
  bool present() const noexcept { return view_.data != nullptr; }
  Array values() const { return to_array(view_); }
  /// Stores values, rounded to the dtype, in row-major order; broadcast elements keep the last.
  void assign(const std::vector<double>& values);
  /// Remembers the content of all memory for the two questions below.
  void remember() { before_ = present() ? *memory_ : std::vector<std::byte>(); }
  /// No byte at all has changed.
  bool unchanged() const { return !present() || *memory_ == before_; }
  /// No byte outside the elements has changed.
  bool gaps_unchanged() const;
  /// No byte of slot `index` of dimension 0 has changed.
  bool slot_unchanged(int64_t index) const;

 private:
  void lay_out(Freedom freedom, Random* random);

  std::shared_ptr<std::vector<std::byte>> memory_;
  std::vector<std::byte> before_;
  size_t first_byte_ = 0;
  sluice_tensor view_{};
};

}  // namespace sluice::check

#endif  // SLUICE_TESTS_PARITY_FREE_TENSOR_HPP_
