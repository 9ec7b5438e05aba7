// Lays tensors out at random, and checks that nothing beside their elements was written.
// SPDX-License-Identifier: Apache-2.0
#include "parity/free_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "check/runs.hpp"

namespace sluice::check {
namespace {

constexpr size_t kGuardBytes = 64;

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

void FreeTensor::assign(const std::vector<double>& values) { store_elements(view_, values.data()); }

bool FreeTensor::gaps_unchanged() const {
  if (!present()) return true;
  std::vector<std::byte> expected = before_;
  for_each_run(view_,
               [&](const Run& run) { copy_run(view_, run, memory_->data(), expected.data()); });
  return *memory_ == expected;
}

bool FreeTensor::slot_unchanged(int64_t slot) const {
  sluice_tensor one_slot = view_;
  one_slot.shape[0] = 1;
  const int64_t width = view_.dtype.bits / 8, apart = slot * view_.stride[0];
  bool same = true;
  for_each_run(one_slot, [&](const Run& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t offset = apart + run.offset + i * run.stride;
      const auto start = static_cast<size_t>(static_cast<int64_t>(first_byte_) + offset * width);
      same = same && std::memcmp(memory_->data() + start, before_.data() + start,
                                 static_cast<size_t>(width)) == 0;
    }
  });
  return same;
}

}  // namespace sluice::check
