// Fills, guards and reads the tensors that checks hand to the library.
// SPDX-License-Identifier: Apache-2.0
#include "check/tensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "check/runs.hpp"

namespace sluice::check {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr size_t kGuardBytes = 256;
constexpr size_t kAlignment = 256;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// Elements of other tensors in a fused row or a padded slot: 16-byte aligned in every dtype.
constexpr int64_t kGap = 24;

size_t alignment_offset(const void* address, size_t alignment) noexcept {
  const auto misfit = reinterpret_cast<uintptr_t>(address) % alignment;
  return misfit == 0 ? 0 : alignment - misfit;
}

}  // namespace

TestTensor::TestTensor(sluice_dtype dtype, std::vector<int64_t> shape, Placement placement) {
  view_.device = {SLUICE_DEVICE_CPU, 0};
  view_.dtype = dtype;
  view_.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view_.shape);
  place(placement);
  poison();
}

TestTensor::TestTensor(sluice_dtype dtype, const Array& values, Placement placement) {
  if (values.empty()) return;
  *this = TestTensor(dtype, values.shape, placement);
  assign(values);
}

TestTensor TestTensor::of_indices(sluice_dtype dtype, const std::vector<int64_t>& values) {
  TestTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) {
    store_element(tensor.view_, static_cast<int64_t>(i), static_cast<double>(values[i]));
  }
  return tensor;
}

void TestTensor::place(Placement placement) {
  const auto rank = static_cast<size_t>(view_.rank);
  std::vector<size_t> order(rank);  // dimensions, outermost in memory first
  for (size_t i = 0; i < rank; ++i) order[i] = i;
  if (placement == Placement::kHeadFirst && rank > 2) std::swap(order[1], order[2]);
  int64_t extent = 1;
  for (size_t i = rank; i-- > 0;) {
    const size_t dimension = order[i];
    const bool wider = (placement == Placement::kFusedRow && dimension == 1) ||
                       (placement == Placement::kPaddedSlots && dimension == 0);
    if (wider) extent += kGap;
    view_.stride[dimension] = extent;
    extent *= std::max<int64_t>(view_.shape[dimension], 1);
  }
  const auto bytes = static_cast<size_t>(extent) * view_.dtype.bits / 8;
  memory_ = std::make_shared<std::vector<std::byte>>(bytes + kAlignment + 2 * kGuardBytes, kGuard);
  first_byte_ = kGuardBytes;
  first_byte_ += alignment_offset(memory_->data() + first_byte_, kAlignment);
  view_.data = memory_->data() + first_byte_;
}

void TestTensor::assign(const Array& values) { store_elements(view_, values.values.data()); }

void TestTensor::fill(double value) {
  std::vector<double> values;
  for_each_run(view_, [&](const Run& run) {
    values.resize(static_cast<size_t>(run.count), value);
    store_run(view_, run, values.data());
  });
}

void TestTensor::poison() {
  const bool floating = view_.dtype.code == kF32.code || view_.dtype.code == kBF16.code;
  fill(floating ? kNaN : 0.0);
}

bool TestTensor::guards_intact() const {
  if (memory_ == nullptr) return true;
  std::vector<std::byte> expected(memory_->size(), kGuard);
  for_each_run(view_,
               [&](const Run& run) { copy_run(view_, run, memory_->data(), expected.data()); });
  return *memory_ == expected;
}

TestWorkspace::TestWorkspace(size_t bytes)
    : memory_(bytes + kAlignment + kGuardBytes, kGuard), size_(bytes) {
  offset_ = alignment_offset(memory_.data(), kAlignment);
  // All ones is NaN in every floating dtype.
  std::memset(memory_.data() + offset_, 0xff, size_);
}

sluice_workspace TestWorkspace::get() const noexcept {
  return {const_cast<std::byte*>(memory_.data()) + offset_, size_};
}

bool TestWorkspace::guards_intact() const noexcept {
  return std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(offset_ + size_), memory_.end(),
                     [](std::byte b) { return b == kGuard; });
}

}  // namespace sluice::check
