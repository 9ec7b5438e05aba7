// Computes gradients of states, from the last chunk to the first, and of v_new.
//
// Math      local: dN = scale P^T d_o, P = tril(exp(G_i - G_j) q_i . k_j)
//           chain: dN += diag(exp(G_C - G)) k D', D = exp(G_C) D' + scale q^T diag(exp G) d_o - w^T
//           dN
// Roles     local: a CTA has one (chunk, head). chain: one (sequence, head, 32 columns of V), and
//           goes from chunk to chunk with D in shared memory; columns know nothing of each other.
// Memory    operands and P or dN: 15 or 23 KB; D: 128 K bytes
// Floor     docs/kernels/backward.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_CUH_

#include "cuda/device/plain_state.cuh"
#include "cuda/kernels/backward/rows.cuh"

namespace sluice::cuda::backward {

using device::ChainWork;

struct LocalMemory {
  PlainOperands operands;
  float G[device::kMostTokens];
  Square P;
};

static_assert(sizeof(LocalMemory) == kLocalBytes);

/// Items are slots x heads.
__global__ void __launch_bounds__(kThreads, 2)
    local_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<LocalMemory*>(dynamic_shared);
  device::follow();
  const StageParams& p = b.stage;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(p, item / p.HV);
    const int64_t head = item % p.HV;
    const int n = chunk.tokens;
    if (n == 0) continue;
    if (threadIdx.x < 32) device::load_sums(p, chunk, head, s.G);
    __syncthreads();
    for (int column0 = 0; column0 < kTokens; column0 += kPlainColumns) {
      PlainPart scores{};
      device::multiply_keys(p, s.operands, chunk, device::key_head(p, head), p.q, 0, column0,
                            &scores);
      scores.for_each([&](int i, int column, float x) {
        const int j = column0 + column;
        s.P[i][j] = i >= j && i < n ? p.scale * expf(s.G[i] - s.G[j]) * x : 0.0f;
      });
    }
    __syncthreads();
    const ChunkRows d_o = chunk_rows(b.d_o, chunk, head, p.V);
    for (int64_t column0 = 0; column0 < p.V; column0 += kPlainColumns) {
      PlainPart tile{};
      multiply_plain<Inner::kOther, Inner::kOther>(
          s.operands, &tile, n, [&](int row, int term) { return s.P[term][row]; },
          [&](int term, int column) { return d_o(term, column0 + column); });
      store_tile(b.dN, chunk, head, 0, column0, p.V, &tile);
    }
    __syncthreads();
  }
}

struct ChainMemory {
  PlainOperands operands;
  float G[device::kMostTokens];
  float dN[kTokens][kPlainColumns];
};

static_assert(sizeof(ChainMemory) == kChainBytes);

/// D <- d_final of a sequence, or zeros.
__device__ __forceinline__ void load_last(const BackwardParams& b, const ChainWork& work,
                                          int64_t seq, float* D) {
  const StageParams& p = b.stage;
  device::clear_state(p, D);
  const auto& pool = b.d_final.pool;
  const int64_t start = seq * pool.slot_stride + work.head * p.K * p.V;
  if (pool.data != nullptr) {
    device::for_each_state(p, work, [&](int k, int column) {
      D[k * kPlainColumns + column] = device::load_number(
          pool.data, start + device::state_element(p, work, k, column), pool.number);
    });
  }
  __syncthreads();
}

/// dN of the chunk, in memory and here.
__device__ __forceinline__ void chain_values(const BackwardParams& b, ChainMemory& s,
                                             const Chunk& chunk, const ChainWork& work,
                                             const float* D) {
  const StageParams& p = b.stage;
  const ChunkRows k = chunk_rows(p.k, chunk, device::key_head(p, work.head), p.K);
  const ChunkRows local = chunk_rows(b.dN, chunk, work.head, p.V);
  PlainPart tile{};
  multiply_plain<Inner::kTerm, Inner::kOther>(
      s.operands, &tile, static_cast<int>(p.K), [&](int row, int term) { return k(row, term); },
      [&](int term, int column) { return D[term * kPlainColumns + column]; });
  const float last = s.G[chunk.tokens - 1];
  tile.for_each([&](int row, int column, float& x) {
    x = fmaf(expf(last - s.G[row]), x, local.written(row, work.first_column + column));
    s.dN[row][column] = x;
  });
  store_tile(b.dN, chunk, work.head, 0, work.first_column, p.V, &tile);
  __syncthreads();
}

/// D of the chunk before.
__device__ __forceinline__ void chain_update(const BackwardParams& b, ChainMemory& s,
                                             const Chunk& chunk, const ChainWork& work, float* D) {
  const StageParams& p = b.stage;
  const int n = chunk.tokens;
  const ChunkRows q = chunk_rows(p.q, chunk, device::key_head(p, work.head), p.K);
  const ChunkRows d_o = chunk_rows(b.d_o, chunk, work.head, p.V);
  const ChunkRows w = chunk_rows(p.w, chunk, work.head, p.K);
  for (int row0 = 0; row0 < p.K; row0 += kTokens) {
    PlainPart tile{};
    multiply_plain<Inner::kOther, Inner::kOther>(
        s.operands, &tile, n,
        [&](int row, int term) { return p.scale * expf(s.G[term]) * q(term, row0 + row); },
        [&](int term, int column) { return d_o(term, work.first_column + column); });
    if (b.delta_rule) {
      multiply_plain<Inner::kOther, Inner::kOther>(
          s.operands, &tile, n, [&](int row, int term) { return -w(term, row0 + row); },
          [&](int term, int column) { return s.dN[term][column]; });
    }
    tile.for_each([&](int row, int column, float x) {
      if (row0 + row >= p.K) return;
      float& state = D[(row0 + row) * kPlainColumns + column];
      state = fmaf(expf(s.G[n - 1]), state, x);
    });
  }
  __syncthreads();
}

/// Items are sequences x heads x slices of 32 columns.
__global__ void __launch_bounds__(kThreads, 2)
    chain_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<ChainMemory*>(dynamic_shared);
  auto* const D = reinterpret_cast<float*>(dynamic_shared + sizeof(ChainMemory));
  device::follow();
  const StageParams& p = b.stage;
  const int64_t slices = (p.V + kPlainColumns - 1) / kPlainColumns;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    ChainWork work{item / slices % p.HV, item % slices * kPlainColumns, 0};
    work.columns = static_cast<int>(min(p.V - work.first_column, int64_t{kPlainColumns}));
    Chunk chunk;
    const int64_t seq = item / slices / p.HV, tokens = device::tokens_of(p, seq, &chunk);
    const int64_t first = chunk.row, before = device::chunks_before(p, seq);
    load_last(b, work, seq, D);
    for (chunk.number = (tokens + kTokens - 1) / kTokens - 1; chunk.number >= 0; --chunk.number) {
      const int64_t done = chunk.number * kTokens;
      chunk.row = first + done;
      chunk.tokens = static_cast<int>(min(tokens - done, int64_t{kTokens}));
      if (threadIdx.x < 32) device::load_sums(p, chunk, work.head, s.G);
      auto* const to =
          static_cast<float*>(b.dh.data) + device::state_at(p, chunk, before, work.head);
      device::for_each_state(p, work, [&](int k, int column) {
        to[device::state_element(p, work, k, column)] = D[k * kPlainColumns + column];
      });
      __syncthreads();
      chain_values(b, s, chunk, work, D);
      chain_update(b, s, chunk, work, D);
    }
    const auto& pool = b.dinitial.pool;
    if (pool.data != nullptr) {
      const int64_t start = seq * pool.slot_stride + work.head * p.K * p.V;
      device::store_state(p, work, pool.data, start, pool.number, D);
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_CUH_
