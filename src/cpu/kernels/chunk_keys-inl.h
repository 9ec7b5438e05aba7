// Computes what key-wise gates make of one chunk and value head (compiled once for each instruction
// set): rows of q and k with their decays, and the matrices over tokens.
// Math    G_i = sum of the log gates up to token i, a number for each channel of k:
//           q~_i = exp(G_i) q_i    k~_i = exp(G_i) k_i    k^_j = exp(G_n - G_j) k_j
//           M_ij = sum over channels of k_i exp(G_i - G_j) k_j, j < i;  P_ij with q_i, j <= i
// Numbers NUM: every factor is a running product of alpha = exp(g) <= 1: nothing overflows whatever
//         the gates, and nothing divides. exp(G_n), which the state is multiplied by in every
//         chunk, comes from a sum: products of rounded alphas would drift under slow gates.
// Order   A lane is a channel; sums run over vectors of channels in ascending order, then lanes.
// Floor   3 instructions a pair of tokens and vector of channels: 2 880 in a chunk of 16 tokens with
//         AVX-512 and K = 128, where the panels take 49 000 multiply-adds.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_KEYS_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_KEYS_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_KEYS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_rows.hpp"
#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows of a chunk with key-wise gates, each [kChunk][stride] with zeros past K.
struct KeyChunk {
  int64_t n = 0, stride = 0;
  const float* q = nullptr;
  const float* k = nullptr;
  float* alpha = nullptr;
  float* decayed_q = nullptr;  ///< q~
  float* decayed_k = nullptr;  ///< k~
  float* written_k = nullptr;  ///< k^
  float* carried = nullptr;    ///< of each token k, decayed up to the tokens in work
  float* decay = nullptr;      ///< [stride]: exp(G_n)
};

/// alpha, from the gates that it holds, and exp(G_n). bias: [stride] of raw gates, or null.
HWY_INLINE void key_alphas(const GateRule& rule, const float* HWY_RESTRICT bias,
                           const KeyChunk& chunk) {
  const FloatTag d;
  const bool given = rule.gate_space == SLUICE_GATE_LINEAR;
  const auto rate = hn::Set(d, rule.decay_rate);
  for (int64_t c = 0; c < chunk.stride; c += static_cast<int64_t>(HWY_LANES(float))) {
    const auto biases = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + c);
    auto sum = hn::Zero(d);
    for (int64_t t = 0; t < chunk.n; ++t) {
      float* const at = chunk.alpha + t * chunk.stride + c;
      const auto gate = hn::LoadU(d, at), g = log_gate(rule, gate, rate, biases);
      sum = hn::Add(sum, g);
      // NUM: a linear gate is the decay itself; exp(log(alpha)) would cost it an ulp.
      if (!given) hn::StoreU(exp_nonpositive(g), d, at);
    }
    hn::StoreU(exp_nonpositive(sum), d, chunk.decay + c);
  }
}

/// The rows of q and k with their decays; zeros past the last.
HWY_INLINE void decay_key_rows(const KeyChunk& chunk) {
  const FloatTag d;
  for (float* rows : {chunk.decayed_q, chunk.decayed_k, chunk.written_k}) {
    std::fill(rows + chunk.n * chunk.stride, rows + kChunk * chunk.stride, 0.0f);
  }
  for (int64_t c = 0; c < chunk.stride; c += static_cast<int64_t>(HWY_LANES(float))) {
    auto until = hn::Set(d, 1.0f), since = hn::Set(d, 1.0f);
    for (int64_t t = 0; t < chunk.n; ++t) {
      const int64_t at = t * chunk.stride + c;
      until = hn::Mul(until, hn::LoadU(d, chunk.alpha + at));
      hn::StoreU(hn::Mul(until, hn::LoadU(d, chunk.q + at)), d, chunk.decayed_q + at);
      hn::StoreU(hn::Mul(until, hn::LoadU(d, chunk.k + at)), d, chunk.decayed_k + at);
    }
    for (int64_t t = chunk.n - 1; t >= 0; --t) {
      const int64_t at = t * chunk.stride + c;
      hn::StoreU(hn::Mul(since, hn::LoadU(d, chunk.k + at)), d, chunk.written_k + at);
      since = hn::Mul(since, hn::LoadU(d, chunk.alpha + at));
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void sum_four_over_lanes(const hn::Vec<FloatTag>* x, float* HWY_RESTRICT sums) {
  for (int i = 0; i < 4; ++i) sums[i] = hn::GetLane(x[i]);
}
#else
/// Its blocks of 128 bits added up.
template <class D>
HWY_INLINE void store_block_sums(D d, hn::Vec<D> x, float* HWY_RESTRICT sums) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(x, d, sums);
  } else {
    const hn::Half<D> half;
    store_block_sums(half, hn::Add(hn::LowerHalf(half, x), hn::UpperHalf(half, x)), sums);
  }
}

/// sums[i] = the sum of x[i]'s lanes, i < 4.
HWY_INLINE void sum_four_over_lanes(const hn::Vec<FloatTag>* x, float* HWY_RESTRICT sums) {
  const FloatTag d;
  const auto add = [d](hn::Vec<FloatTag> a, hn::Vec<FloatTag> b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  store_block_sums(d, add(add(x[0], x[2]), add(x[1], x[3])), sums);
}
#endif

/// Tokens i of a tile of pairs (i, j): two accumulators each.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr size_t kPairTokens = 8;
#else
constexpr size_t kPairTokens = 4;
#endif
static_assert(kChunk % kPairTokens == 0);

/// M_ij and P_ij of token j with tokens i = first .. first + kPairTokens - 1. With kFrom == 0 and j
/// < first `carried` is k_j decayed up to token first - 1, and is left decayed up to the last i;
/// else j is token first + kFrom - 1. Without kKeys P alone.
template <bool kKeys, size_t kFrom>
HWY_INLINE void multiply_pairs(const KeyChunk& chunk, int64_t j, int64_t first, float* M,
                               float* P) {
  const FloatTag d;
  hn::Vec<FloatTag> with_k[kPairTokens], with_q[kPairTokens];
  SLUICE_UNROLL
  for (size_t r = 0; r < kPairTokens; ++r) with_k[r] = with_q[r] = hn::Zero(d);
  const float* HWY_RESTRICT const start = (kFrom == 0 ? chunk.carried : chunk.k) + j * chunk.stride;
  float* HWY_RESTRICT const end = chunk.carried + j * chunk.stride;
  for (int64_t c = 0; c < chunk.stride; c += static_cast<int64_t>(HWY_LANES(float))) {
    const int64_t at = first * chunk.stride + c;
    auto x = hn::LoadU(d, start + c);
    if constexpr (kFrom > 0) {
      const auto q = hn::LoadU(d, chunk.q + at + static_cast<int64_t>(kFrom - 1) * chunk.stride);
      with_q[kFrom - 1] = hn::MulAdd(q, x, with_q[kFrom - 1]);
    }
    SLUICE_UNROLL
    for (size_t r = kFrom; r < kPairTokens; ++r) {
      const int64_t row = at + static_cast<int64_t>(r) * chunk.stride;
      x = hn::Mul(x, hn::LoadU(d, chunk.alpha + row));
      if constexpr (kKeys) with_k[r] = hn::MulAdd(hn::LoadU(d, chunk.k + row), x, with_k[r]);
      with_q[r] = hn::MulAdd(hn::LoadU(d, chunk.q + row), x, with_q[r]);
    }
    hn::StoreU(x, d, end + c);
  }
  float of_k[kPairTokens], of_q[kPairTokens];
  SLUICE_UNROLL
  for (size_t r = 0; r < kPairTokens; r += 4) {
    if constexpr (kKeys) sum_four_over_lanes(with_k + r, of_k + r);
    sum_four_over_lanes(with_q + r, of_q + r);
  }
  constexpr size_t kFirstOfP = kFrom > 0 ? kFrom - 1 : 0;
  SLUICE_UNROLL
  for (size_t r = kFirstOfP; r < kPairTokens; ++r) {
    const int64_t at = (first + static_cast<int64_t>(r)) * kChunk + j;
    if (kKeys && r >= kFrom) M[at] = of_k[r];
    P[at] = of_q[r];
  }
}

/// multiply_pairs() of each token of a tile with those after it.
template <bool kKeys, size_t... kFroms>
HWY_INLINE void multiply_diagonal(const KeyChunk& chunk, int64_t first, float* M, float* P,
                                  std::index_sequence<kFroms...>) {
  (multiply_pairs<kKeys, kFroms + 1>(chunk, first + static_cast<int64_t>(kFroms), first, M, P),
   ...);
}

/// M_ij (j < i) and P_ij (j <= i), both [kChunk][kChunk]; entries above the diagonal and rows past n
/// mean nothing. Without kKeys P alone, and M may be null.
template <bool kKeys>
HWY_NOINLINE void key_products(const KeyChunk& chunk, float* HWY_RESTRICT M,
                               float* HWY_RESTRICT P) {
  constexpr int64_t kStep = static_cast<int64_t>(kPairTokens);
  for (int64_t first = 0; first < chunk.n; first += kStep) {
    for (int64_t j = 0; j < first; ++j) multiply_pairs<kKeys, 0>(chunk, j, first, M, P);
    multiply_diagonal<kKeys>(chunk, first, M, P, std::make_index_sequence<kPairTokens>());
  }
}

/// A_ij = beta_i M_ij, and P_ij. Rows past n are those of zeros.
inline void key_matrices(const KeyChunk& chunk, const float* HWY_RESTRICT beta,
                         float* HWY_RESTRICT A, float* HWY_RESTRICT P) {
  key_products<true>(chunk, A, P);
  for (int64_t i = 0; i < chunk.n; ++i) {
    for (int64_t j = 0; j < i; ++j) A[i * kChunk + j] *= beta[i];
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_KEYS_INL_H_
