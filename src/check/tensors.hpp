// Makes tensors that checks hand to the library: any strides, guard bytes around and between the
// elements, NaN in everything that the library must write.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_TENSORS_HPP_
#define SLUICE_CHECK_TENSORS_HPP_

#include <cstddef>
#include <memory>
#include <vector>

#include "check/array.hpp"

namespace sluice::check {

/// How a tensor lies in memory; the view's shape is the same in all of them.
enum class Placement {
  kDense,        ///< row-major
  kHeadFirst,    ///< dimensions 1 and 2 exchanged in memory: [B,T,H,D] stored as [B,H,T,D]
  kFusedRow,     ///< dimension 1 strides over a wider row: a slice of a fused projection
  kPaddedSlots,  ///< dimension 0 strides over more than its content: pool slots with other data
};

/// A CPU tensor that owns its memory. Everything in the allocation that is not an element is guard.
class TestTensor {
 public:
  /// Absent.
  TestTensor() = default;
  /// Elements start as NaN (zero for integers and bool).
  TestTensor(sluice_dtype dtype, std::vector<int64_t> shape,
             Placement placement = Placement::kDense);
  /// Elements start as `values`, rounded to dtype. An empty array gives an absent tensor.
  TestTensor(sluice_dtype dtype, const Array& values, Placement placement = Placement::kDense);
  /// An integer or bool tensor of rank 1.
  static TestTensor of_indices(sluice_dtype dtype, const std::vector<int64_t>& values);

  const sluice_tensor& view() const noexcept { return view_; }
  void assign(const Array& values);
  void fill(double value);
  /// Fills with NaN.
  void poison();
  Array values() const { return to_array(view_); }
  /// True while no byte outside the elements has changed.
  bool guards_intact() const;
  /// The whole allocation, guards included, for bitwise comparisons.
  const std::vector<std::byte>& bytes() const noexcept { return *memory_; }

 private:
  void place(Placement placement);

  std::shared_ptr<std::vector<std::byte>> memory_;
  size_t first_byte_ = 0;
  sluice_tensor view_{};
};

/// 256-byte aligned scratch filled with NaN, with guard bytes behind it.
class TestWorkspace {
 public:
  explicit TestWorkspace(size_t bytes);
  sluice_workspace get() const noexcept;
  bool guards_intact() const noexcept;

 private:
  std::vector<std::byte> memory_;
  size_t offset_ = 0, size_ = 0;
};

}  // namespace sluice::check

#endif  // SLUICE_CHECK_TENSORS_HPP_
