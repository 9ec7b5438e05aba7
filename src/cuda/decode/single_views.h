// Describes views of problems as the kernels of single tokens take them: 32-bit strides in bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DECODE_SINGLE_VIEWS_H_
#define SLUICE_CUDA_DECODE_SINGLE_VIEWS_H_

#include "cuda/kernels/decode/single/params.h"
#include "cuda/lower_views.h"

namespace sluice::cuda::decode {

inline int64_t bytes_of(const core::Tensor& t) noexcept { return t.dtype.bits / 8; }

/// Whether a stride in bytes is one of SingleParams. An axis of one element has any.
inline bool is_stride(int64_t extent, int64_t bytes) noexcept {
  return extent <= 1 || (bytes >= 0 && bytes <= INT32_MAX);
}

inline bool has_strides(const core::Tensor& t) noexcept {
  const int64_t bytes = bytes_of(t);
  for (int axis = 0; axis < static_cast<int>(t.rank); ++axis) {
    if (!is_stride(t.shape[axis], t.stride[axis] * bytes)) return false;
  }
  return true;
}

inline uint32_t stride_of(const core::Tensor& t, int axis) noexcept {
  return t.shape[axis] <= 1 ? 0 : static_cast<uint32_t>(t.stride[axis] * bytes_of(t));
}

/// Whether rows have 16-bit numbers along their last axis, axis 1 one token, and strides that keep
/// an alignment in bytes, a power of two. PERF a division takes as long as the rest of these rules.
inline bool has_rows(const core::Tensor& t, int64_t alignment) noexcept {
  const int last = static_cast<int>(t.rank) - 1;
  bool aligned = t.dtype.bits == 16 && t.stride[last] == 1;
  for (int axis = 0; axis < last; ++axis) {
    aligned = aligned && (axis == 1 || t.shape[axis] <= 1 ||
                          ((t.stride[axis] * bytes_of(t)) & (alignment - 1)) == 0);
  }
  return aligned && has_strides(t);
}

/// @param bytes a power of two
inline bool is_aligned(const void* data, int64_t bytes) noexcept {
  return (reinterpret_cast<uintptr_t>(data) & static_cast<uintptr_t>(bytes - 1)) == 0;
}

inline SingleRows single_rows(const core::Tensor& t) noexcept {
  if (!core::present(t)) return {};
  return {static_cast<char*>(t.data), stride_of(t, 0), stride_of(t, 2)};
}

inline Number state_number(const core::DeltaRuleProblem& p) noexcept {
  return number_type(core::present(p.state.initial) ? p.state.initial.dtype : p.state.final.dtype);
}

/// Neighbours along the last axis: [N,1,HV,128], or [HV,128].
SingleKeyRows single_key_rows(const core::Tensor& t) noexcept;
/// What steps and layers have in common.
void lower_single_common(const core::DeltaRuleProblem& p, SingleCommon* out) noexcept;

/// Whether a layer's convolution and norm are the kernel's, but for addresses; and by addresses.
bool has_single_layer_parts(const core::LayerProblem& p) noexcept;
bool has_aligned_layer_parts(const core::LayerProblem& p) noexcept;

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_DECODE_SINGLE_VIEWS_H_
