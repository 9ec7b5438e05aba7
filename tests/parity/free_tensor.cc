// SPDX-License-Identifier: Apache-2.0
#include "parity/free_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace sluice::testing {
namespace {

constexpr size_t kGuardBytes = 64;

/// Calls body(element offset) for every element of a view, in row-major order.
template <class Body>
void for_each_offset(const sluice_tensor& view, Body body) {
  const auto rank = static_cast<size_t>(view.rank);
  int64_t count = 1;
  for (size_t i = 0; i < rank; ++i) count *= view.shape[i];
  std::vector<int64_t> index(rank, 0);
  for (int64_t element = 0; element < count; ++element) {
    int64_t offset = 0;
    for (size_t i = 0; i < rank; ++i) offset += index[i] * view.stride[i];
    body(offset);
    for (size_t i = rank; i-- > 0 && ++index[i] == view.shape[i];) index[i] = 0;
  }
}

bool is_input(Freedom freedom) {
  return freedom == Freedom::kInput || freedom == Freedom::kAnyInput;
}

}  // namespace

FreeTensor::FreeTensor(sluice_dtype dtype, std::vector<int64_t> shape, Freedom freedom,
                       Random* random) {
  view_.device = {SLUICE_DEVICE_CPU, 0};
  view_.dtype = dtype;
  view_.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view_.shape);
  lay_out(freedom, random);
}

void FreeTensor::lay_out(Freedom freedom, Random* random) {
  const auto rank = static_cast<size_t>(view_.rank);
  std::vector<size_t> order(rank);  // outermost in memory first
  std::iota(order.begin(), order.end(), size_t{0});
  const bool swapped = freedom == Freedom::kSwapped;
  const bool dense = freedom == Freedom::kDense || swapped, pool = freedom == Freedom::kPool;
  const bool inner = freedom == Freedom::kInput || freedom == Freedom::kOutput;
  for (size_t i = inner ? rank - 1 : rank; !dense && !pool && i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(pick(random, static_cast<int64_t>(i)))]);
  }
  if (swapped) std::swap(order[rank - 1], order[rank - 2]);
  int64_t extent = 1, origin = 0;
  for (size_t place = rank; place-- > 0;) {
    const size_t dimension = order[place];
    const int64_t size = std::max<int64_t>(view_.shape[dimension], 1);
    const bool fixed = dense || (inner && dimension == rank - 1) || (pool && dimension > 0);
    if (!fixed && chance(random, 2)) extent += 1 + pick(random, 5);
    view_.stride[dimension] = extent;
    if (!fixed && is_input(freedom) && chance(random, 6)) {
      if (chance(random, 3)) {
        view_.stride[dimension] = 0;
        continue;
      }
      view_.stride[dimension] = -extent;
      origin += extent * (size - 1);
    }
    extent *= size;
  }
  const size_t width = view_.dtype.bits / 8u;
  memory_ = std::make_shared<std::vector<std::byte>>(
      static_cast<size_t>(extent + 4) * width + 2 * kGuardBytes, std::byte{0xff});
  const auto misfit = reinterpret_cast<uintptr_t>(memory_->data()) % 64;
  first_byte_ = (64 - misfit) % 64;
  if (!dense) first_byte_ += static_cast<size_t>(pick(random, 4)) * width;
  first_byte_ += static_cast<size_t>(origin) * width;
  view_.data = memory_->data() + first_byte_;
}

void FreeTensor::assign(const std::vector<double>& values) {
  size_t next = 0;
  for_each_offset(view_, [&](int64_t offset) { store_element(view_, offset, values[next++]); });
}

bool FreeTensor::gaps_unchanged() const {
  if (!present()) return true;
  std::vector<bool> is_element(memory_->size(), false);
  const auto width = static_cast<int64_t>(view_.dtype.bits / 8u);
  for_each_offset(view_, [&](int64_t offset) {
    const int64_t start = static_cast<int64_t>(first_byte_) + offset * width;
    for (int64_t i = 0; i < width; ++i) is_element[static_cast<size_t>(start + i)] = true;
  });
  for (size_t i = 0; i < memory_->size(); ++i) {
    if (!is_element[i] && (*memory_)[i] != before_[i]) return false;
  }
  return true;
}

bool FreeTensor::slot_unchanged(int64_t slot) const {
  sluice_tensor one_slot = view_;
  one_slot.shape[0] = 1;
  const auto width = static_cast<int64_t>(view_.dtype.bits / 8u);
  const int64_t first = static_cast<int64_t>(first_byte_) + slot * view_.stride[0] * width;
  bool same = true;
  for_each_offset(one_slot, [&](int64_t offset) {
    const auto start = static_cast<size_t>(first + offset * width);
    same = same && std::memcmp(memory_->data() + start, before_.data() + start,
                               static_cast<size_t>(width)) == 0;
  });
  return same;
}

}  // namespace sluice::testing
