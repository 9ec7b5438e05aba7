// Compares two strided views byte by byte, without walking through their elements.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "core/host_access.hpp"
#include "core/overlap.hpp"

namespace sluice::core {
namespace {

/// Bytes that a view's elements occupy: blocks of `block` bytes, repeated size[i] times at distances
/// of stride[i], the widest first.
struct Footprint {
  uintptr_t low = 0;
  int axes = 0;
  int64_t stride[SLUICE_MAX_RANK] = {}, size[SLUICE_MAX_RANK] = {}, block = 0;

  explicit Footprint(const Tensor& t) noexcept;

  /// Bytes from the first to the last one of the axes `from`, from + 1, ..
  [[nodiscard]] int64_t span(int from) const noexcept {
    int64_t bytes = block;
    for (int i = from; i < axes; ++i) bytes += (size[i] - 1) * stride[i];
    return bytes;
  }
};

Footprint::Footprint(const Tensor& t) noexcept : block(element_size(t.dtype)) {
  int64_t lowest = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] < 2 || t.stride[axis] == 0) continue;
    const int64_t distance = std::abs(t.stride[axis]) * block;
    if (t.stride[axis] < 0) lowest -= distance * (t.shape[axis] - 1);
    int place = axes++;
    for (; place > 0 && stride[place - 1] < distance; --place) {
      stride[place] = stride[place - 1], size[place] = size[place - 1];
    }
    stride[place] = distance, size[place] = t.shape[axis];
  }
  low = reinterpret_cast<uintptr_t>(t.data) + static_cast<uintptr_t>(lowest);
  // Axes that follow one another without a gap are one.
  for (int i = axes - 2; i >= 0; --i) {
    if (stride[i] != stride[i + 1] * size[i + 1]) continue;
    stride[i] = stride[i + 1], size[i] *= size[i + 1];
    std::copy(stride + i + 2, stride + axes, stride + i + 1);
    std::copy(size + i + 2, size + axes, size + i + 1);
    --axes;
  }
  if (axes > 0 && stride[axes - 1] == block) block *= size[--axes];
}

int64_t floor_divide(int64_t a, int64_t b) noexcept { return a / b - (a % b < 0 ? 1 : 0); }

/// Whether the axes i.. of a, from 0 on, and j.. of b, from `from` on, have no byte in common.
bool apart(const Footprint& a, int i, const Footprint& b, int j, int64_t from) noexcept {
  if (from >= a.span(i) || from + b.span(j) <= 0) return true;
  const int64_t wide = i < a.axes ? a.stride[i] : 0, other = j < b.axes ? b.stride[j] : 0;
  if (wide == 0 && other == 0) return false;
  if (wide < other) return apart(b, j, a, i, -from);
  const int64_t inner = a.span(i + 1);
  if (wide == other) {
    // Both repeat at this distance: what matters is where their blocks lie within it.
    if (inner > wide || b.span(j + 1) > wide) return false;
    const int64_t shift = from - floor_divide(from, wide) * wide;
    return apart(a, i + 1, b, j + 1, shift) && apart(a, i + 1, b, j + 1, shift - wide);
  }
  constexpr int64_t kMostCopies = 4;
  const int64_t first = std::max<int64_t>(0, floor_divide(from - inner, wide) + 1);
  const int64_t last = std::min(a.size[i] - 1, floor_divide(from + b.span(j) - 1, wide));
  if (last - first >= kMostCopies) return false;
  for (int64_t copy = first; copy <= last; ++copy) {
    if (!apart(a, i + 1, b, j, from - copy * wide)) return false;
  }
  return true;
}

}  // namespace

bool may_share(const Tensor& a, const Tensor& b) noexcept {
  const Footprint x(a), y(b);
  return !apart(x, 0, y, 0, static_cast<int64_t>(y.low - x.low));
}

}  // namespace sluice::core
