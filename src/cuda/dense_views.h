// Lays dense views out in a workspace, for operators made of others.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DENSE_VIEWS_H_
#define SLUICE_CUDA_DENSE_VIEWS_H_

#include "core/dense_view.hpp"
#include "core/problem.hpp"
#include "cuda/workspace_layout.h"

namespace sluice::cuda {

/// A dense view [shape..] of the workspace.
inline core::Tensor take_view(WorkspaceLayout& layout, sluice_device device, sluice_dtype dtype,
                              std::initializer_list<int64_t> shape) noexcept {
  core::Tensor view = core::dense_view(nullptr, dtype, shape);
  view.device = device;
  const int64_t elements = view.shape[0] * view.stride[0];
  view.data = layout.take(static_cast<size_t>(elements * (dtype.bits / 8)));
  return view;
}

/// A dense view of other extents.
inline core::Tensor reshaped(const core::Tensor& view,
                             std::initializer_list<int64_t> shape) noexcept {
  core::Tensor other = core::dense_view(view.data, view.dtype, shape);
  other.device = view.device;
  return other;
}

}  // namespace sluice::cuda

#endif  // SLUICE_CUDA_DENSE_VIEWS_H_
