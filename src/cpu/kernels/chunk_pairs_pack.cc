// Packs q and k of a chunk as operands of bfloat16 dot products, and multiplies them.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cpu/kernels/chunk_pairs.hpp"
#include "cpu/kernels/chunk_pairs_simd.hpp"

namespace sluice::cpu {
#if SLUICE_HAS_PAIRS
namespace {

constexpr int64_t kLanes = kPairLanes;
static_assert(kChunk == kLanes);

/// to[i * to_stride + r] = word i of row r of 16, for one block of 16 words.
SLUICE_INLINE void transpose_block(const uint16_t* from, int64_t stride, int64_t rows, uint32_t* to,
                                   int64_t to_stride) {
  __m512i a[16], b[16];
  SLUICE_UNROLL
  for (int64_t r = 0; r < 16; ++r) {
    a[r] = r < rows ? load_words(from + r * stride) : _mm512_setzero_si512();
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < 16; r += 2) {
    b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < 16; r += 4) {
    a[r] = _mm512_unpacklo_epi64(b[r], b[r + 2]);
    a[r + 1] = _mm512_unpackhi_epi64(b[r], b[r + 2]);
    a[r + 2] = _mm512_unpacklo_epi64(b[r + 1], b[r + 3]);
    a[r + 3] = _mm512_unpackhi_epi64(b[r + 1], b[r + 3]);
  }
  // a[4g + j], block l: word 4l + j of rows 4g..4g+3.
  SLUICE_UNROLL
  for (size_t j = 0; j < 4; ++j) {
    const __m512i even01 = _mm512_shuffle_i32x4(a[j], a[j + 4], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(a[j], a[j + 4], 0xdd);
    const __m512i even23 = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0x88);
    const __m512i odd23 = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0xdd);
    uint32_t* const out = to + static_cast<int64_t>(j) * to_stride;
    _mm512_storeu_si512(out, _mm512_shuffle_i32x4(even01, even23, 0x88));
    _mm512_storeu_si512(out + 4 * to_stride, _mm512_shuffle_i32x4(odd01, odd23, 0x88));
    _mm512_storeu_si512(out + 8 * to_stride, _mm512_shuffle_i32x4(even01, even23, 0xdd));
    _mm512_storeu_si512(out + 12 * to_stride, _mm512_shuffle_i32x4(odd01, odd23, 0xdd));
  }
}

/// Pairs of tokens 2j, 2j+1 of k.
SLUICE_INLINE void interleave_tokens(const PairSource& source, uint32_t* pairs) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  for (int64_t t = 0; t < source.n; t += 2) {
    const uint16_t* const row = source.k + t * source.k_stride;
    for (int64_t i = 0; i < source.K; i += 2 * kLanes) {
      const __m512i first = load_words(row + i);
      const __m512i second =
          t + 1 < source.n ? load_words(row + source.k_stride + i) : _mm512_setzero_si512();
      uint32_t* const out = pairs + t / 2 * source.K + i;
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(out + kLanes, _mm512_permutex2var_epi16(first, high, second));
    }
  }
}

/// out [kChunk][kChunk]: products of 16 tokens of `left` with the tokens of k, both in qk_t, on and
/// below the diagonal; the first 8 tokens have none with the last 8.
SLUICE_INLINE void token_products(const uint32_t* left, const uint32_t* k, int64_t K, float* out) {
  constexpr size_t kHalf = 8;
  __m256 first[kHalf];
  __m512 last[kHalf];
  SLUICE_UNROLL
  for (size_t r = 0; r < kHalf; ++r) first[r] = _mm256_setzero_ps();
  SLUICE_UNROLL
  for (size_t r = 0; r < kHalf; ++r) last[r] = _mm512_setzero_ps();
  for (int64_t i = 0; i < K / 2; ++i) {
    const __m512i row = load_words(k);
    const auto half = reinterpret_cast<__m256bh>(_mm512_castsi512_si256(row));
    SLUICE_UNROLL
    for (size_t r = 0; r < kHalf; ++r) {
      const auto factor = reinterpret_cast<__m256bh>(_mm256_set1_epi32(static_cast<int>(left[r])));
      first[r] = _mm256_dpbf16_ps(first[r], factor, half);
      last[r] = multiply_pairs(last[r], _mm512_set1_epi32(static_cast<int>(left[kHalf + r])), row);
    }
    left += 2 * kChunk;
    k += 2 * kChunk;
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kHalf; ++r) {
    _mm256_store_ps(out + r * kChunk, first[r]);
    _mm512_store_ps(out + (r + kHalf) * kChunk, last[r]);
  }
}

/// 1 / sqrt(sum of squares + eps) of each token, times `factor`.
SLUICE_INLINE void norm_factors(const uint32_t* tokens, int64_t K, float eps, float factor,
                                float* out) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < K / 2; ++i) {
    const __m512i row = load_words(tokens + i * 2 * kChunk);
    const __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(row, 16));
    const __m512 high =
        _mm512_castsi512_ps(_mm512_and_si512(row, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    sum = _mm512_fmadd_ps(high, high, _mm512_fmadd_ps(low, low, sum));
  }
  const __m512 root = _mm512_sqrt_ps(_mm512_add_ps(sum, _mm512_set1_ps(eps)));
  _mm512_store_ps(out, _mm512_div_ps(_mm512_set1_ps(factor), root));
}

SLUICE_INLINE void scale_products(const float* row_factor, const float* k_factor, float* products) {
  const __m512 columns = _mm512_load_ps(k_factor);
  for (int64_t i = 0; i < kChunk; ++i) {
    const __m512 factor = _mm512_mul_ps(_mm512_set1_ps(row_factor[i]), columns);
    float* const row = products + i * kChunk;
    _mm512_store_ps(row, _mm512_mul_ps(factor, _mm512_load_ps(row)));
  }
}

}  // namespace

void pack_pairs(const PairSource& source, const PairRows& rows) noexcept {
  const int64_t K = source.K;
  for (int64_t i = 0; i < K / 2; i += kLanes) {
    uint32_t* const to = rows.qk_t + i * 2 * kChunk;
    transpose_block(source.k + 2 * i, source.k_stride, source.n, to, 2 * kChunk);
    transpose_block(source.q + 2 * i, source.q_stride, source.n, to + kChunk, 2 * kChunk);
  }
  interleave_tokens(source, rows.pairs);
  token_products(rows.qk_t, rows.qk_t, K, rows.kk);
  token_products(rows.qk_t + kChunk, rows.qk_t, K, rows.qk);
  if (source.normalise) {
    norm_factors(rows.qk_t, K, source.eps, 1.0f, rows.k_factor);
    norm_factors(rows.qk_t + kChunk, K, source.eps, source.scale, rows.q_factor);
    scale_products(rows.k_factor, rows.k_factor, rows.kk);
  } else {
    _mm512_store_ps(rows.k_factor, _mm512_set1_ps(1.0f));
    _mm512_store_ps(rows.q_factor, _mm512_set1_ps(source.scale));
  }
  scale_products(rows.q_factor, rows.k_factor, rows.qk);
}

void pack_key_pairs(const KeyPairSource& source, const PairRows& rows) noexcept {
  const int64_t K = source.K;
  alignas(64) uint16_t words[kChunk * 2 * kLanes];
  for (int64_t i = 0; i < K; i += 2 * kLanes) {
    for (const auto& [from, to] : {std::pair{source.decayed_k, rows.qk_t + i * kChunk},
                                   std::pair{source.decayed_q, rows.qk_t + i * kChunk + kChunk}}) {
      for (int64_t t = 0; t < kChunk; ++t) {
        const float* const row = from + t * K + i;
        const auto both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(row + kLanes), _mm512_loadu_ps(row));
        _mm512_store_si512(words + t * 2 * kLanes, reinterpret_cast<__m512i>(both));
      }
      transpose_block(words, 2 * kLanes, kChunk, to, 2 * kChunk);
    }
  }
  for (int64_t t = 0; t < kChunk; t += 2) {
    for (int64_t i = 0; i < K; i += kLanes) {
      const float* const low = source.written_k + t * K + i;
      _mm512_storeu_si512(rows.pairs + t / 2 * K + i,
                          pair_up(_mm512_loadu_ps(low), _mm512_loadu_ps(low + K)));
    }
  }
  _mm512_store_ps(rows.k_factor, _mm512_set1_ps(1.0f));
  _mm512_store_ps(rows.q_factor, _mm512_set1_ps(1.0f));
}

#else

void pack_pairs(const PairSource&, const PairRows&) noexcept {}
void pack_key_pairs(const KeyPairSource&, const PairRows&) noexcept {}

#endif
}  // namespace sluice::cpu
SLUICE_PAIRS_END
