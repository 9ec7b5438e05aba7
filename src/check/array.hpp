// Holds dense arrays of doubles, which checks compute with, and turns any strided view into one.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_ARRAY_HPP_
#define SLUICE_CHECK_ARRAY_HPP_

#include <cstdint>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::check {

inline constexpr sluice_dtype kF32{2, 32}, kF16{2, 16}, kBF16{4, 16}, kF64{2, 64};
inline constexpr sluice_dtype kI32{0, 32}, kI64{0, 64}, kBool{6, 8};

constexpr bool same_dtype(sluice_dtype a, sluice_dtype b) noexcept {
  return a.code == b.code && a.bits == b.bits;
}
/// "float32", "bfloat16", ..
const char* dtype_name(sluice_dtype dtype) noexcept;

/// Number of elements of a shape.
int64_t element_count(const std::vector<int64_t>& shape) noexcept;

/// A dense row-major array of doubles, owning.
struct Array {
  Array() = default;
  explicit Array(std::vector<int64_t> sizes, double value = 0.0)
      : shape(std::move(sizes)), values(static_cast<size_t>(element_count(shape)), value) {}

  std::vector<int64_t> shape;
  std::vector<double> values;

  int64_t size() const noexcept { return static_cast<int64_t>(values.size()); }
  bool empty() const noexcept { return shape.empty(); }
  /// Row-major position of (index..).
  template <class... Index>
  size_t position(Index... index) const noexcept {
    int64_t offset = 0;
    size_t dimension = 0;
    ((offset = offset * shape[dimension++] + static_cast<int64_t>(index)), ...);
    return static_cast<size_t>(offset);
  }
  template <class... Index>
  double& operator()(Index... index) noexcept {
    return values[position(index...)];
  }
  template <class... Index>
  double operator()(Index... index) const noexcept {
    return values[position(index...)];
  }
};

/// A float64 view of an array, for the comparer and for the reference's internals. An empty array
/// gives an absent view. The view of a constant array must not be written through.
sluice_tensor view_of(const Array& array) noexcept;

/// `value` rounded once to `dtype`, to nearest even; float64 leaves it alone.
double round_to(sluice_dtype dtype, double value) noexcept;
/// Every element rounded to `dtype`.
Array round_to(sluice_dtype dtype, Array array) noexcept;

/// Element at `offset` elements from the start of a view, as a double. Any dtype named above.
double load_element(const sluice_tensor& view, int64_t offset) noexcept;
/// The same, stored with one rounding; integers must be exact.
void store_element(const sluice_tensor& view, int64_t offset, double value) noexcept;

/// All elements of a strided view.
Array to_array(const sluice_tensor& view);

}  // namespace sluice::check

#endif  // SLUICE_CHECK_ARRAY_HPP_
