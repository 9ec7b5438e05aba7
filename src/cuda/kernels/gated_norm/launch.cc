// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/gated_norm/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/gated_norm/instances.h"

namespace sluice::cuda::gated_norm {
namespace {

/// WHY a bound: row numbers plus a grid's worth of rows stay within 32 bits.
constexpr uint32_t kMaxGrid = 1u << 20;
/// Rows of a lane group of the packed kernel at a time.
constexpr uint32_t kTogether = 2;

int64_t rows_of(const NormParams& p) noexcept {
  return p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3];
}

int64_t bytes_of(const NormRows& rows) noexcept { return rows.number == Number::kFloat32 ? 4 : 2; }

void skip(NormRows* rows, int axis, int64_t count) noexcept {
  if (rows->data == nullptr) return;
  rows->data = static_cast<char*>(rows->data) + count * rows->stride[axis] * bytes_of(*rows);
}

/// Leaves out the first `count` of an axis.
NormParams without_first(NormParams p, int axis, int64_t count) noexcept {
  for (NormRows* rows : {&p.x, &p.z, &p.out, &p.copy}) skip(rows, axis, count);
  if (p.row_kinds != nullptr && axis == 0) p.row_kinds += count * p.row_kinds_stride;
  if (p.row_kinds != nullptr && axis == 1) p.row_kinds += count;
  p.shape[axis] -= count;
  return p;
}

int launch_one(NormParams p, void* stream) noexcept {
  const bool packs = by_packs(p);
  plan_launch(&p);
  const auto at_once = packs ? kTogether * static_cast<uint32_t>(kThreads / p.lanes) : kWarps;
  const dim3 grid(std::min((p.rows + at_once - 1) / at_once, kMaxGrid));
  void* arguments[] = {&p};
  return cudaLaunchKernel(packs ? rows_by_packs() : rows_by_elements(), grid, dim3(kThreads),
                          arguments, 0, static_cast<cudaStream_t>(stream));
}

}  // namespace

int load_kernels() noexcept {
  for (const auto kernel : {rows_by_packs, rows_by_elements}) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

int launch(const NormParams& params, void* stream) noexcept {
  NormParams left = params;
  int64_t rows = rows_of(left);
  while (rows > kMaxRows) {
    // The outermost axis that has more than one entry, cut so that a part fits.
    int axis = 0;
    while (left.shape[axis] == 1) ++axis;
    const int64_t each = rows / left.shape[axis], count = std::max(kMaxRows / each, int64_t{1});
    NormParams part = left;
    part.shape[axis] = count;
    const int error = launch(part, stream);
    if (error != cudaSuccess) return error;
    left = without_first(left, axis, count);
    rows = rows_of(left);
  }
  return rows == 0 ? static_cast<int>(cudaSuccess) : launch_one(left, stream);
}

}  // namespace sluice::cuda::gated_norm
