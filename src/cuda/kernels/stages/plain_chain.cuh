// Runs the stages with states for any dtype and stride: chunk_h and chunk_o, in float32.
//
// Math      h = S, v_new = u - w S, S <- exp(G_C) S + k^T diag(exp(G_C - G)) v_new; key-wise gates:
//           S <- diag(exp(G_C)) S + (exp(G_C - G) * k)^T v_new
//           o = scale (diag(exp G) q S + (exp(G_i - G_j) q k^T, i >= j) v_new); key-wise gates:
//           scale ((exp(G) * q) S + P v_new), P with the decay of each channel inside the product
// Roles     chain: a CTA has one (sequence, head, 32 columns of V) and goes from chunk to chunk
//           with S in shared memory; it writes h and v_new (chunk_h), or o (chunk_o without h).
//           outputs: a CTA has one (chunk, head) and reads S from h (chunk_o with h).
// Memory    operands, P of 64 x 32, v_new of 128 x 32: 32 KB; S: 128 K bytes
// Floor     none, as plain.cuh
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_STAGES_PLAIN_CHAIN_CUH_
#define SLUICE_CUDA_KERNELS_STAGES_PLAIN_CHAIN_CUH_

#include "cuda/device/plain_state.cuh"
#include "cuda/kernels/stages/plain.cuh"

namespace sluice::cuda::stages {

using device::at, device::ChainWork, device::Chunk, device::chunk_of, device::chunks_before;
using device::Inner;
using device::key_head, device::kMostTokens, device::load_sums, device::multiply_decayed_keys;
using device::multiply_keys;
using device::multiply_plain, device::Number, device::PlainOperands, device::PlainPart;
using device::row_number, device::slots_of, device::StageParams, device::state_at;
using device::state_element, device::store_state, device::store_tile, device::tokens_of;

struct ChainMemory {
  PlainOperands operands;
  float G[kMostTokens];
  float P[kPlainRows][kPlainColumns + 1];
  float v_new[kMostTokens][kPlainColumns];
};

/// o of a chunk from S(k, column) and v(token, column) of the CTA's columns. kKeyWise: gates are.
template <bool kKeyWise, class State, class Values>
__device__ __forceinline__ void plain_outputs(const StageParams& p, ChainMemory& s,
                                              const Chunk& chunk, const ChainWork& work,
                                              const State& state, const Values& values) {
  const int n = chunk.tokens;
  const int64_t keys = key_head(p, work.head);
  for (int row0 = 0; row0 < n; row0 += kPlainRows) {
    PlainPart out{};
    multiply_plain<Inner::kTerm, Inner::kOther>(
        s.operands, &out, static_cast<int>(p.K),
        [&](int row, int term) {
          if (row0 + row >= n) return 0.0f;
          const int64_t start = at(p.q, chunk.batch, chunk.row + row0 + row, keys);
          const float q = row_number(p.q, start, term, p.K);
          if constexpr (!kKeyWise) return q;
          const int64_t G = at(p.g_cumsum, chunk.batch, chunk.row + row0 + row, work.head);
          return expf(row_number(p.g_cumsum, G, term, p.K)) * q;
        },
        state);
    if (!kKeyWise) {
      out.for_each([&](int row, int, float& x) { x *= expf(s.G[min(row0 + row, n - 1)]); });
    }
    for (int column0 = 0; column0 < min(row0 + kPlainRows, n); column0 += kPlainColumns) {
      PlainPart scores{};
      if (kKeyWise) {
        multiply_decayed_keys(p, s.operands, chunk, work.head, p.q, row0, column0, &scores);
      } else {
        multiply_keys(p, s.operands, chunk, keys, p.q, row0, column0, &scores);
      }
      scores.for_each([&](int row, int column, float x) {
        const int i = row0 + row, j = column0 + column;
        const bool inside = i >= j && i < n;
        s.P[row][column] = !inside ? 0.0f : kKeyWise ? x : expf(s.G[i] - s.G[j]) * x;
      });
      __syncthreads();
      multiply_plain<Inner::kTerm, Inner::kOther>(
          s.operands, &out, min(kPlainColumns, n - column0),
          [&](int row, int term) { return s.P[row][term]; },
          [&](int term, int column) { return values(column0 + term, column); });
    }
    out.for_each([&](int, int, float& x) { x *= p.scale; });
    store_tile(p.o, chunk, work.head, row0, work.first_column, p.V, &out);
  }
}

/// v_new of the chunk, to shared memory and, where wanted, to v_new.
__device__ __forceinline__ void plain_values(const StageParams& p, ChainMemory& s,
                                             const Chunk& chunk, const ChainWork& work,
                                             const float* S) {
  const int n = chunk.tokens;
  for (int row0 = 0; row0 < n; row0 += kPlainRows) {
    PlainPart tile{};
    if (p.w.data != nullptr) {
      multiply_plain<Inner::kTerm, Inner::kOther>(
          s.operands, &tile, static_cast<int>(p.K),
          [&](int row, int term) {
            const int64_t start = at(p.w, chunk.batch, chunk.row + row0 + row, work.head);
            return row0 + row < n ? row_number(p.w, start, term, p.K) : 0.0f;
          },
          [&](int term, int column) { return S[term * kPlainColumns + column]; });
    }
    tile.for_each([&](int row, int column, float& x) {
      const int i = row0 + row;
      if (i >= n) return;
      const int64_t start = at(p.values, chunk.batch, chunk.row + i, work.head);
      x = row_number(p.values, start, work.first_column + column, p.V) - x;
      s.v_new[i][column] = x;
    });
    if (p.v_new.data != nullptr) {
      store_tile(p.v_new, chunk, work.head, row0, work.first_column, p.V, &tile);
    }
  }
  __syncthreads();
}

/// S of the next chunk.
template <bool kKeyWise>
__device__ __forceinline__ void plain_update(const StageParams& p, ChainMemory& s,
                                             const Chunk& chunk, const ChainWork& work, float* S) {
  const int n = chunk.tokens;
  const int64_t keys = key_head(p, work.head);
  // G of a token; key-wise, of a row of S.
  const auto sum = [&](int token, int row) {
    if constexpr (!kKeyWise) return s.G[token];
    const int64_t start = at(p.g_cumsum, chunk.batch, chunk.row + token, work.head);
    return row_number(p.g_cumsum, start, row, p.K);
  };
  for (int row0 = 0; row0 < p.K; row0 += kPlainRows) {
    PlainPart tile{};
    multiply_plain<Inner::kOther, Inner::kOther>(
        s.operands, &tile, n,
        [&](int row, int term) {
          const int64_t start = at(p.k, chunk.batch, chunk.row + term, keys);
          const float since = sum(n - 1, row0 + row) - sum(term, row0 + row);
          return expf(since) * row_number(p.k, start, row0 + row, p.K);
        },
        [&](int term, int column) { return s.v_new[term][column]; });
    tile.for_each([&](int row, int column, float x) {
      if (row0 + row >= p.K) return;
      float& state = S[(row0 + row) * kPlainColumns + column];
      state = fmaf(expf(sum(n - 1, row0 + row)), state, x);
    });
  }
  __syncthreads();
}

/// The state that a sequence starts from.
__device__ __forceinline__ void load_state(const StageParams& p, const ChainWork& work,
                                           int64_t slot, float* S) {
  const auto& pool = p.state.initial.pool;
  const int64_t start = slot * pool.slot_stride + work.head * p.K * p.V;
  device::clear_state(p, S);
  if (slot >= 0) {
    device::for_each_state(p, work, [&](int k, int column) {
      S[k * kPlainColumns + column] =
          device::load_written(pool.data, start + state_element(p, work, k, column), pool.number);
    });
  }
  __syncthreads();
}

/// What a padded sequence's chunk has: zeros. S is zeros there.
__device__ __forceinline__ void plain_zeros(const StageParams& p, const Chunk& chunk,
                                            const ChainWork& work) {
  for (int row0 = 0; row0 < chunk.tokens; row0 += kPlainRows) {
    PlainPart zeros{};
    if (p.o.data != nullptr)
      store_tile(p.o, chunk, work.head, row0, work.first_column, p.V, &zeros);
    if (p.v_new.data == nullptr) continue;
    store_tile(p.v_new, chunk, work.head, row0, work.first_column, p.V, &zeros);
  }
}

/// Items are sequences x heads x slices of 32 columns.
template <bool kKeyWise>
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_chain_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<ChainMemory*>(dynamic_shared);
  auto* const S = reinterpret_cast<float*>(dynamic_shared + sizeof(ChainMemory));
  device::follow();
  const int64_t slices = (p.V + kPlainColumns - 1) / kPlainColumns;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    ChainWork work{item / slices % p.HV, item % slices * kPlainColumns, 0};
    work.columns = static_cast<int>(min(p.V - work.first_column, int64_t{kPlainColumns}));
    Chunk chunk;
    const int64_t seq = item / slices / p.HV, tokens = tokens_of(p, seq, &chunk);
    const device::Sequence sequence = slots_of(p, seq);
    const int64_t before = p.h.data != nullptr ? chunks_before(p, seq) : 0;
    load_state(p, work, sequence.read, S);
    for (int64_t done = 0; done < tokens; done += p.C, ++chunk.number, chunk.row += p.C) {
      chunk.tokens = static_cast<int>(min(tokens - done, int64_t{p.C}));
      if (threadIdx.x < 32 && !kKeyWise) load_sums(p, chunk, work.head, s.G);
      __syncthreads();
      if (p.h.data != nullptr && device::has_state(p, chunk, before)) {
        store_state(p, work, p.h.data, state_at(p, chunk, before, work.head), p.h.number, S);
      }
      if (sequence.padded) {
        plain_zeros(p, chunk, work);
        continue;
      }
      plain_values(p, s, chunk, work, S);
      if (p.o.data != nullptr) {
        plain_outputs<kKeyWise>(
            p, s, chunk, work, [&](int k, int column) { return S[k * kPlainColumns + column]; },
            [&](int token, int column) { return s.v_new[token][column]; });
      }
      plain_update<kKeyWise>(p, s, chunk, work, S);
    }
    if (sequence.write >= 0) {
      const auto& pool = p.state.final.pool;
      const int64_t start = sequence.write * pool.slot_stride + work.head * p.K * p.V;
      store_state(p, work, pool.data, start, pool.number, S);
    }
    __syncthreads();
  }
}

/// chunk_o with h. Items are slots x heads x slices of 32 columns.
template <bool kKeyWise>
__global__ void __launch_bounds__(kPlainThreads, 2)
    plain_outputs_kernel(const __grid_constant__ StageParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<ChainMemory*>(dynamic_shared);
  device::follow();
  const int64_t slices = (p.V + kPlainColumns - 1) / kPlainColumns;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    ChainWork work{item / slices % p.HV, item % slices * kPlainColumns, 0};
    const Chunk chunk = chunk_of(p, item / slices / p.HV);
    if (chunk.tokens == 0) continue;
    if (threadIdx.x < 32 && !kKeyWise) load_sums(p, chunk, work.head, s.G);
    __syncthreads();
    const int64_t before = chunks_before(p, chunk.seq);
    const int64_t state = state_at(p, chunk, before, work.head);
    const bool exists = device::has_state(p, chunk, before);
    plain_outputs<kKeyWise>(
        p, s, chunk, work,
        [&](int k, int column) {
          if (!exists || work.first_column + column >= p.V) return 0.0f;
          const int64_t from = state + state_element(p, work, k, column);
          return device::load_number(p.h.data, from, p.h.number);
        },
        [&](int token, int column) {
          const int64_t start = at(p.values, chunk.batch, chunk.row + token, work.head);
          return row_number(p.values, start, work.first_column + column, p.V);
        });
    __syncthreads();
  }
}

}  // namespace sluice::cuda::stages

#endif  // SLUICE_CUDA_KERNELS_STAGES_PLAIN_CHAIN_CUH_
