// Defines TensorView, a strided view of memory that somebody else owns.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TENSOR_VIEW_HPP_
#define SLUICE_TENSOR_VIEW_HPP_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "sluice/sluice.h"

namespace sluice {

/// Element types, DLPack's (code, bits) pairs.
struct DType : sluice_dtype {};
inline constexpr DType kFloat32{{2, 32}}, kFloat16{{2, 16}}, kBFloat16{{4, 16}};
inline constexpr DType kInt32{{0, 32}}, kInt64{{0, 64}}, kBool{{6, 8}}, kUInt8{{1, 8}};

/// The DType of a C++ type that has one: float, int32_t, int64_t, bool, uint8_t.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = kFloat32;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = kInt64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = kBool;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = kUInt8;
};

inline constexpr sluice_device kCpuDevice{SLUICE_DEVICE_CPU, 0};
constexpr sluice_device cuda_device(int32_t index = 0) noexcept {
  return {SLUICE_DEVICE_CUDA, index};
}

/// A view; layout-compatible with sluice_tensor, absent by default. Strides count elements.
/// More than SLUICE_MAX_RANK dimensions leave rank above the limit, which every operator refuses.
struct TensorView : sluice_tensor {
  constexpr TensorView() noexcept : sluice_tensor{} {}
  constexpr explicit TensorView(const sluice_tensor& view) noexcept : sluice_tensor(view) {}

  /// Row-major contiguous view.
  TensorView(const void* memory, DType type, std::initializer_list<int64_t> sizes,
             sluice_device where = kCpuDevice) noexcept
      : sluice_tensor{} {
    fill(memory, type, sizes, where);
    int64_t step = 1;
    for (int axis = kept_rank() - 1; axis >= 0; --axis) {
      stride[axis] = step;
      step *= shape[axis];
    }
  }

  /// View with explicit strides, as many as sizes.
  TensorView(const void* memory, DType type, std::initializer_list<int64_t> sizes,
             std::initializer_list<int64_t> strides, sluice_device where = kCpuDevice) noexcept
      : sluice_tensor{} {
    fill(memory, type, sizes, where);
    int axis = 0;
    for (const int64_t s : strides) {
      if (axis < SLUICE_MAX_RANK) stride[axis++] = s;
    }
    if (strides.size() != sizes.size()) rank = SLUICE_MAX_RANK + 1;
  }

  /// Row-major contiguous view of typed memory.
  template <class T>
  TensorView(const T* memory, std::initializer_list<int64_t> sizes,
             sluice_device where = kCpuDevice) noexcept
      : TensorView(memory, DTypeOf<T>::value, sizes, where) {}

  [[nodiscard]] constexpr bool present() const noexcept { return data != nullptr; }

  /// The same memory with two dimensions exchanged: a [B,H,T,D] tensor becomes its token-first
  /// [B,T,H,D] view by transposed(1, 2).
  [[nodiscard]] constexpr TensorView transposed(int a, int b) const noexcept {
    TensorView view = *this;
    view.shape[a] = shape[b];
    view.shape[b] = shape[a];
    view.stride[a] = stride[b];
    view.stride[b] = stride[a];
    return view;
  }

  /// Elements first .. first + count - 1 of one dimension.
  [[nodiscard]] TensorView sliced(int axis, int64_t first, int64_t count) const noexcept {
    TensorView view = *this;
    view.data = static_cast<std::byte*>(data) + first * stride[axis] * (dtype.bits / 8);
    view.shape[axis] = count;
    return view;
  }

 private:
  int kept_rank() const noexcept { return rank < SLUICE_MAX_RANK ? rank : SLUICE_MAX_RANK; }

  void fill(const void* memory, DType type, std::initializer_list<int64_t> sizes,
            sluice_device where) noexcept {
    data =
        const_cast<void*>(memory);  // inputs are never written; the C struct has one pointer type
    device = where;
    dtype = type;
    rank = static_cast<uint16_t>(sizes.size());
    int axis = 0;
    for (const int64_t s : sizes) {
      if (axis < SLUICE_MAX_RANK) shape[axis++] = s;
    }
  }
};

static_assert(sizeof(TensorView) == sizeof(sluice_tensor));

}  // namespace sluice

#endif  // SLUICE_TENSOR_VIEW_HPP_
