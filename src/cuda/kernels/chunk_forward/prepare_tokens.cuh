// Prepares tokens ahead of all passes: inverse norms of q and k, and what raw gates and logits are as
// logarithms and write strengths.
//
// Math    1 / sqrt(sum of squares + eps) of each row; g and beta as sluice.h has them
// Roles   a CTA of 128 threads has 64 rows of a head of k or q, K / 8 lanes a row, or 128 tokens of a
//         value head's numbers
// Memory  registers; all rows of a warp are on their way at once
// Floor   bytes of q and k, once. PERF in the passes every value head, and every 64 or 128 columns of
//         V of it, took norms and gates again, on the longest way through a chunk
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_TOKENS_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_TOKENS_CUH_

#include "cuda/device/token_gates.cuh"
#include "cuda/kernels/chunk_forward/prepared.h"
#include "cuda/ptx/stream.cuh"
#include "cuda/tile/lanes.cuh"
#include "cuda/tile/number.cuh"

namespace sluice::cuda::chunk_forward {

/// A row of all batch entries.
struct PreparedRow {
  int64_t batch = 0, token;

  __device__ __forceinline__ PreparedRow(int64_t batch_, int64_t token_)
      : batch(batch_), token(token_) {}
  /// PERF one division, where there are several batch entries.
  __device__ __forceinline__ PreparedRow(const device::PrefillParams& p, int64_t row) : token(row) {
    if (row < p.T) return;
    batch = row / p.T;
    token = row - batch * p.T;
  }
};

/// The sum of squares of eight numbers.
template <class Io>
__device__ __forceinline__ float sum_of_squares(const uint4& x) {
  using Pack = tile::Packed<Io>;
  float even = 0.0f, odd = 0.0f;
  for (const uint32_t word : {x.x, x.y, x.z, x.w}) {
    even = fmaf(Pack::first(word), Pack::first(word), even);
    odd = fmaf(Pack::second(word), Pack::second(word), odd);
  }
  return even + odd;
}

/// Inverse norms of rows 64 block .. of a head of k, or of q.
template <class Io, int kK>
__device__ __forceinline__ void put_norms(const device::PrefillParams& p, const TokenRows& rows,
                                          int64_t block, int head, float* to) {
  constexpr int kLanes = kK / 8, kTogether = 32 / kLanes, kSteps = 16 / kTogether;
  const int64_t count = p.token_rows(),
                own = 64 * block + 16 * tile::warp() + tile::lane() / kLanes;
  const auto* const from = static_cast<const uint16_t*>(rows.data) + head * rows.head_stride +
                           8 * (tile::lane() % kLanes);
  const auto at = [&](const PreparedRow& row) {
    return reinterpret_cast<const uint4*>(from + row.batch * rows.batch_stride +
                                          row.token * rows.token_stride);
  };
  uint4 x[kSteps];
  const PreparedRow begin(p, 64 * block);
  // PERF no branch between the loads of a block that lies in one batch entry.
  if (begin.token + 64 <= p.T) {
    const uint4* const first = at({begin.batch, begin.token + own - 64 * block});
    const int64_t step = kTogether * rows.token_stride / 8;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) x[i] = __ldg(first + i * step);
  } else {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int64_t row = own + i * kTogether;
      x[i] = row < count ? __ldg(at(PreparedRow(p, row))) : make_uint4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    float sum = sum_of_squares<Io>(x[i]);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const int64_t row = own + i * kTogether;
    if (tile::lane() % kLanes == 0 && row < count) to[row] = rsqrtf(sum + p.l2norm_eps);
  }
}

/// Log gates and write strengths of tokens 128 block .. of a value head.
__device__ __forceinline__ void put_numbers(const device::PrefillParams& p, int64_t block,
                                            int head) {
  const int64_t count = p.token_rows(), row = 128 * block + threadIdx.x;
  const device::RawGate raw = device::load_raw_gate(p, head);
  if (row >= count) return;
  const PreparedRow at(p, row);
  const auto number = [&](const device::TokenScalar& t) {
    return device::load_number(static_cast<const char*>(t.data) + at.batch * t.batch_bytes +
                                   at.token * t.token_bytes + (head / p.r) * t.group_bytes +
                                   (head % p.r) * t.member_bytes,
                               0, t.number);
  };
  float* const to = p.prepared.numbers + head * count + row;
  if (p.gate.data != nullptr) to[0] = device::log_gate(p.gate_form, raw, number(p.gate));
  if (p.beta.data != nullptr) {
    to[p.HV * count] = device::write_strength(p.beta_form, p.beta_factor, number(p.beta));
  }
}

/// See the head of this file; prepared_items() CTAs. Neighbours have heads of the same tokens, which
/// neighbour each other in memory.
template <class Io, int kK>
__global__ void __launch_bounds__(kPreparedThreads)
    prepare_tokens_kernel(const __grid_constant__ device::PrefillParams p,
                          const __grid_constant__ KeyRows keys) {
  // PERF the pass behind comes when this launch has ended: its CTAs, placed one by one as
  // multiprocessors become free, took up to 1.4 times as long (16/64 heads, 32768 tokens).
  ptx::wait_for_dependencies();
  const auto norms = static_cast<uint32_t>(norm_items(p)), item = blockIdx.x,
             H = static_cast<uint32_t>(p.H), HV = static_cast<uint32_t>(p.HV);
  if (item < norms) {
    const uint32_t block = item / (2 * H), head = item - block * 2 * H;
    put_norms<Io, kK>(p, head < H ? keys.k : keys.q, block,
                      static_cast<int>(head < H ? head : head - H),
                      p.prepared.norms + head * p.token_rows());
  } else {
    const uint32_t block = (item - norms) / HV;
    put_numbers(p, block, static_cast<int>(item - norms - block * HV));
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARE_TOKENS_CUH_
