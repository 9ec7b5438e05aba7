// Cuts a norm of more rows than one launch takes into several.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_GATED_NORM_PARTS_H_
#define SLUICE_CUDA_KERNELS_GATED_NORM_PARTS_H_

#include <algorithm>

#include "cuda/kernels/gated_norm/params.h"

namespace sluice::cuda::gated_norm {

inline int64_t rows_of(const NormParams& p) noexcept {
  return p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3];
}

/// The parameters without the first `count` of an axis.
inline NormParams without_first(NormParams p, int axis, int64_t count) noexcept {
  for (NormRows* rows : {&p.x, &p.z, &p.out, &p.copy}) {
    const int64_t bytes = rows->number == Number::kFloat32 ? 4 : 2;
    if (rows->data == nullptr) continue;
    rows->data = static_cast<char*>(rows->data) + count * rows->stride[axis] * bytes;
  }
  if (p.row_kinds != nullptr && axis == 0) p.row_kinds += count * p.row_kinds_stride;
  if (p.row_kinds != nullptr && axis == 1) p.row_kinds += count;
  p.shape[axis] -= count;
  return p;
}

/// Calls launch(NormParams) for parts of at most `most` rows, in order.
template <class Launch>
void in_parts(NormParams left, int64_t most, const Launch& launch) noexcept {
  while (rows_of(left) > most) {
    // The outermost axis that has more than one entry, cut so that a part fits if it can.
    int axis = 0;
    while (left.shape[axis] == 1) ++axis;
    const int64_t each = rows_of(left) / left.shape[axis];
    NormParams part = left;
    part.shape[axis] = std::max(most / each, int64_t{1});
    in_parts(part, most, launch);
    left = without_first(left, axis, part.shape[axis]);
  }
  if (rows_of(left) > 0) launch(left);
}

}  // namespace sluice::cuda::gated_norm

#endif  // SLUICE_CUDA_KERNELS_GATED_NORM_PARTS_H_
