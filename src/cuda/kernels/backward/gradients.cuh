// Computes gradients of a chunk's tokens from the states around it.
//
// Math      docs/math.md (17), given S (stage.h), D' (dh), N (v_new; simple GLA: v) and dN:
//           X = s tril(Gamma * d_o N^T), Y = L^T dN, dv = beta Y, Z = -beta stril(Gamma * Y N^T),
//           ..
// Roles     a CTA has one (chunk, head), and goes from tile to tile of 64 tokens and 32 columns
// Memory    operands, X, Z and one more square of 64 x 64 in float32: 59 KB
// Floor     docs/kernels/backward.md
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_GRADIENTS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_GRADIENTS_CUH_

#include "cuda/kernels/backward/prepare.cuh"

namespace sluice::cuda::backward {

struct GradientMemory {
  PlainOperands operands;
  TokenNumbers numbers;  ///< G and beta
  Square X, Z, M;        ///< M: X * q k^T, then Z * k k^T, below the diagonal
  float until[kTokens], since[kTokens];
  float dG[kTokens], dbeta[kTokens], to_last[kTokens];
  float warps[kWarps];
};

static_assert(sizeof(GradientMemory) == kGradientBytes);

/// The chunk and head of a CTA, and their rows.
struct GradientWork {
  Chunk chunk;
  int64_t head;
  ChunkRows q, k, v, N, d_o, dN, Y;
  StateElements S, D;  ///< that enters, and the gradient of the one that leaves
};

__device__ __forceinline__ GradientWork gradient_work(const BackwardParams& b, const Chunk& chunk,
                                                      int64_t head) {
  const StageParams& p = b.stage;
  const int64_t keys = device::key_head(p, head), entry = entry_of(p, chunk, head);
  return {chunk,
          head,
          chunk_rows(p.q, chunk, keys, p.K),
          chunk_rows(p.k, chunk, keys, p.K),
          chunk_rows(p.values, chunk, head, p.V),
          chunk_rows(b.delta_rule ? p.v_new : p.values, chunk, head, p.V),
          chunk_rows(b.d_o, chunk, head, p.V),
          chunk_rows(b.dN, chunk, head, p.V),
          chunk_rows(b.Y, chunk, head, p.V),
          state_elements(p, p.h, entry),
          state_elements(p, b.dh, entry)};
}

__device__ __forceinline__ void load_token_numbers(const BackwardParams& b, GradientMemory& s,
                                                   const GradientWork& w) {
  device::load_numbers(b.stage, w.chunk, w.head, s.numbers);
  const auto i = static_cast<int>(threadIdx.x);
  if (i < kTokens) {
    const float* const G = s.numbers.G;
    s.until[i] = expf(G[i]);
    s.since[i] = expf(G[w.chunk.tokens - 1] - G[i]);
    s.dG[i] = s.dbeta[i] = s.to_last[i] = 0.0f;
  }
  __syncthreads();
}

/// dG += row sums - column sums of M, whose diagonal is zero. NUM: with it both sums would hold a
/// term without decay, which cancels, but its rounding stays.
__device__ __forceinline__ void add_gate_sums(GradientMemory& s) {
  __syncthreads();
  const auto i = static_cast<int>(threadIdx.x);
  if (i < kTokens) {
    float rows = 0.0f, columns = 0.0f;
    for (int j = 0; j < i; ++j) rows += s.M[i][j];
    for (int j = i + 1; j < kTokens; ++j) columns += s.M[j][i];
    s.dG[i] += rows - columns;
  }
  __syncthreads();
}

/// X, and what the gates get through it.
__device__ __forceinline__ void token_matrix(const BackwardParams& b, GradientMemory& s,
                                             const GradientWork& w) {
  const StageParams& p = b.stage;
  const float* const G = s.numbers.G;
  for (int column0 = 0; column0 < kTokens; column0 += kPlainColumns) {
    PlainPart products{}, tile{};
    device::multiply_keys(p, s.operands, w.chunk, device::key_head(p, w.head), p.q, 0, column0,
                          &products);
    multiply_plain<Inner::kTerm, Inner::kTerm>(
        s.operands, &tile, static_cast<int>(p.V),
        [&](int row, int term) { return w.d_o(row, term); },
        [&](int term, int column) { return w.N(column0 + column, term); });
#pragma unroll
    for (int a = 0; a < 4; ++a) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int i = PlainPart::row(a), j = column0 + PlainPart::column(c);
        const bool inside = i >= j && i < w.chunk.tokens;
        const float x = inside ? p.scale * expf(G[i] - G[j]) * tile.x[a][c] : 0.0f;
        s.X[i][j] = x;
        s.M[i][j] = i > j && inside ? x * products.x[a][c] : 0.0f;
      }
    }
  }
  add_gate_sums(s);
}

/// Y and dv; dbeta and dG through R = v - diag(exp G) k S.
__device__ __forceinline__ void corrections(const BackwardParams& b, GradientMemory& s,
                                            const GradientWork& w) {
  const StageParams& p = b.stage;
  const ChunkRows L = chunk_rows(p.A_inverse, w.chunk, w.head, kTokens);
  RowSums by_beta, by_gate;
  for (int64_t column0 = 0; column0 < p.V; column0 += kPlainColumns) {
    PlainPart Y{}, read{};
    multiply_plain<Inner::kOther, Inner::kOther>(
        s.operands, &Y, w.chunk.tokens,
        [&](int row, int term) { return term >= row ? L(term, row) : 0.0f; },
        [&](int term, int column) { return w.dN(term, column0 + column); });
    multiply_plain<Inner::kTerm, Inner::kOther>(
        s.operands, &read, static_cast<int>(p.K), [&](int row, int term) { return w.k(row, term); },
        [&](int term, int column) { return w.S(term, column0 + column); });
    by_beta.add([&](int row, int column, int a, int c) {
      return Y.x[a][c] * (w.v(row, column0 + column) - s.until[row] * read.x[a][c]);
    });
    by_gate.add([&](int row, int, int a, int c) {
      return s.numbers.beta[row] * Y.x[a][c] * s.until[row] * read.x[a][c];
    });
    store_tile(b.Y, w.chunk, w.head, 0, column0, p.V, &Y);
    if (b.dv.data == nullptr) continue;
    Y.for_each([&](int row, int, float& x) { x *= s.numbers.beta[row]; });
    store_tile(b.dv, w.chunk, w.head, 0, column0, p.V, &Y);
  }
  by_beta.add_to(s.dbeta, 1.0f);
  by_gate.add_to(s.dG, -1.0f);
  // SYNC Y: all of it is in memory, for the CTA that wrote it
  __syncthreads();
}

/// Z; dbeta and dG through A.
__device__ __forceinline__ void correction_matrix(const BackwardParams& b, GradientMemory& s,
                                                  const GradientWork& w) {
  const StageParams& p = b.stage;
  const float* const G = s.numbers.G;
  RowSums by_beta;
  for (int column0 = 0; column0 < kTokens; column0 += kPlainColumns) {
    PlainPart products{}, tile{};
    device::multiply_keys(p, s.operands, w.chunk, device::key_head(p, w.head), p.k, 0, column0,
                          &products);
    multiply_plain<Inner::kTerm, Inner::kTerm>(
        s.operands, &tile, static_cast<int>(p.V),
        [&](int row, int term) { return w.Y.written(row, term); },
        [&](int term, int column) { return w.N(column0 + column, term); });
    by_beta.add([&](int i, int column, int a, int c) {
      const int j = column0 + column;
      const bool inside = i > j && i < w.chunk.tokens;
      const float x = inside ? -expf(G[i] - G[j]) * tile.x[a][c] : 0.0f;
      const float product = inside ? x * products.x[a][c] : 0.0f;
      s.Z[i][j] = s.numbers.beta[i] * x;
      s.M[i][j] = s.numbers.beta[i] * product;
      return product;
    });
  }
  by_beta.add_to(s.dbeta, 1.0f);
  add_gate_sums(s);
}

/// dG through the states; with simple GLA also dv.
__device__ __forceinline__ void states(const BackwardParams& b, GradientMemory& s,
                                       const GradientWork& w) {
  const StageParams& p = b.stage;
  RowSums entered, added;
  for (int64_t column0 = 0; column0 < p.V; column0 += kPlainColumns) {
    PlainPart read{}, leave{};
    multiply_plain<Inner::kTerm, Inner::kOther>(
        s.operands, &read, static_cast<int>(p.K), [&](int row, int term) { return w.q(row, term); },
        [&](int term, int column) { return w.S(term, column0 + column); });
    multiply_plain<Inner::kTerm, Inner::kOther>(
        s.operands, &leave, static_cast<int>(p.K),
        [&](int row, int term) { return w.k(row, term); },
        [&](int term, int column) { return w.D(term, column0 + column); });
    entered.add([&](int row, int column, int a, int c) {
      return read.x[a][c] * w.d_o(row, column0 + column);
    });
    added.add([&](int row, int column, int a, int c) {
      return leave.x[a][c] * w.N(row, column0 + column);
    });
    if (b.delta_rule || b.dv.data == nullptr) continue;
    PlainPart dN{};
    dN.for_each([&](int row, int column, float& x) { x = w.dN(row, column0 + column); });
    store_tile(b.dv, w.chunk, w.head, 0, column0, p.V, &dN);
  }
  entered.add_to(s.to_last, p.scale);
  __syncthreads();
  const auto i = static_cast<int>(threadIdx.x);
  if (i < kTokens) {
    s.dG[i] += s.until[i] * s.to_last[i];
    s.to_last[i] = 0.0f;
  }
  __syncthreads();
  added.add_to(s.to_last, 1.0f);
  float product = 0.0f;
  for (int64_t at = threadIdx.x; at < p.K * p.V; at += kThreads) {
    product = fmaf(__ldg(w.S.data + at), __ldg(w.D.data + at), product);
  }
  product = cta_sum(product, s.warps);
  if (threadIdx.x != 0) return;
  // Of the last token both cancel: see add_gate_sums().
  const int last = w.chunk.tokens - 1;
  float sum = s.until[last] * product;
  for (int j = 0; j < last; ++j) {
    const float x = s.since[j] * s.to_last[j];
    s.dG[j] -= x;
    sum += x;
  }
  s.dG[last] += sum;
}

/// Gradients of gates and write strengths, by the warp of the CTA's first tokens.
__device__ __forceinline__ void store_gates(const BackwardParams& b, GradientMemory& s,
                                            const GradientWork& w) {
  __syncthreads();
  if (threadIdx.x == 0) {
    float dg = 0.0f;
    for (int i = w.chunk.tokens - 1; i >= 0; --i) s.dG[i] = dg += s.dG[i];
  }
  __syncthreads();
  const auto i = static_cast<int>(threadIdx.x);
  if (i >= w.chunk.tokens) return;
  const GivenGate given = given_gate(b, w.chunk, w.head, i);
  store_gate(b, w.chunk, w.head, i, given, s.dG[i], s.dbeta[i]);
}

/// This head's parts of dq.
__device__ __forceinline__ void queries(const BackwardParams& b, GradientMemory& s,
                                        const GradientWork& w) {
  const StageParams& p = b.stage;
  for (int64_t column0 = 0; column0 < p.K; column0 += kPlainColumns) {
    PlainPart tile{};
    multiply_plain<Inner::kTerm, Inner::kTerm>(
        s.operands, &tile, static_cast<int>(p.V),
        [&](int row, int term) { return w.d_o(row, term); },
        [&](int term, int column) { return w.S(column0 + column, term); });
    tile.for_each([&](int row, int, float& x) { x *= p.scale * s.until[row]; });
    multiply_plain<Inner::kTerm, Inner::kOther>(
        s.operands, &tile, w.chunk.tokens, [&](int row, int term) { return s.X[row][term]; },
        [&](int term, int column) { return w.k(term, column0 + column); });
    store_tile(b.dq_parts, w.chunk, w.head, 0, column0, p.K, &tile);
  }
}

/// This head's parts of dk.
__device__ __forceinline__ void keys(const BackwardParams& b, GradientMemory& s,
                                     const GradientWork& w) {
  const StageParams& p = b.stage;
  for (int64_t column0 = 0; column0 < p.K; column0 += kPlainColumns) {
    PlainPart tile{};
    multiply_plain<Inner::kTerm, Inner::kTerm>(
        s.operands, &tile, static_cast<int>(p.V),
        [&](int row, int term) { return s.since[row] * w.N(row, term); },
        [&](int term, int column) { return w.D(column0 + column, term); });
    multiply_plain<Inner::kOther, Inner::kOther>(
        s.operands, &tile, w.chunk.tokens, [&](int row, int term) { return s.X[term][row]; },
        [&](int term, int column) { return w.q(term, column0 + column); });
    if (b.delta_rule) {
      multiply_plain<Inner::kTerm, Inner::kTerm>(
          s.operands, &tile, static_cast<int>(p.V),
          [&](int row, int term) {
            return -s.until[row] * s.numbers.beta[row] * w.Y.written(row, term);
          },
          [&](int term, int column) { return w.S(column0 + column, term); });
      multiply_plain<Inner::kTerm, Inner::kOther>(
          s.operands, &tile, w.chunk.tokens,
          [&](int row, int term) { return s.Z[row][term] + s.Z[term][row]; },
          [&](int term, int column) { return w.k(term, column0 + column); });
    }
    store_tile(b.dk_parts, w.chunk, w.head, 0, column0, p.K, &tile);
  }
}

/// Items are slots x heads.
__global__ void __launch_bounds__(kThreads, 2)
    gradients_kernel(const __grid_constant__ BackwardParams b, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<GradientMemory*>(dynamic_shared);
  device::follow();
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const Chunk chunk = device::chunk_of(b.stage, item / b.stage.HV);
    if (chunk.tokens == 0) continue;
    const GradientWork w = gradient_work(b, chunk, item % b.stage.HV);
    load_token_numbers(b, s, w);
    token_matrix(b, s, w);
    if (b.delta_rule) {
      corrections(b, s, w);
      correction_matrix(b, s, w);
    }
    states(b, s, w);
    store_gates(b, s, w);
    if (b.dq.data != nullptr) queries(b, s, w);
    if (b.dk.data != nullptr) keys(b, s, w);
    __syncthreads();
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_GRADIENTS_CUH_
