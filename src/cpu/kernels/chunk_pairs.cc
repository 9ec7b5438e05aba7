// Computes chunks of prefill by bfloat16 dot products.
// Math    As in chunk_forward-inl.h, with factors f of q and k (l2 norm, scale) outside of sums:
//           x_i = beta_i (v_i - exp(G_i) f_i S^T k_i) - sum over j < i of A_ij x_j
//           o_i = exp(G_i) f_i S^T q_i + sum over j <= i of P_ij x_j
//           S  <- exp(G_n) S + sum over pairs of tokens of k_j (exp(G_n - G_j) f_j x_j)^T
//         Key-wise gates: as there, q and k come with their decays.
// Numbers NUM: S and exp(G_n - G_j) f_j x_j are rounded to bfloat16 as operands, once a chunk; q, k
//         and v are bfloat16 already. x, A, P, the substitution, all sums and the running S are
//         float32. vdpbf16ps reads and writes subnormals as zeros.
// Memory  A panel of 32 columns: 16 KiB of float32 and 8 KiB of pairs for K = 128. The update
//         writes both, so rounding costs no pass of its own.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/chunk_pairs.hpp"
#include "cpu/kernels/chunk_pairs_simd.hpp"

namespace sluice::cpu {
#if SLUICE_HAS_PAIRS
namespace {

constexpr int64_t kLanes = kPairLanes;
constexpr size_t kRows = 8;  ///< of a tile: 16 accumulators, a broadcast and two loads
constexpr size_t kVectors = 2;
static_assert(kPairColumns == kLanes * kVectors && kChunk == kLanes);

using Tile = __m512[kRows][kVectors];

SLUICE_INLINE __m512 load_bfloat16(const uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/// Rounds to nearest even, subnormals kept: what the conversion instruction does not do.
SLUICE_INLINE void store_exactly(__m512 value, uint16_t* to) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_mov_epi32(rounded, nan, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(result));
}

/// tile[r][c] = sum over pairs i of left[i][r] . right[i][column c], K / 2 pairs.
SLUICE_INLINE void multiply(const uint32_t* left, const uint32_t* right, int64_t K, Tile& tile) {
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) tile[r][0] = tile[r][1] = _mm512_setzero_ps();
  for (int64_t i = 0; i < K / 2; ++i) {
    const __m512i row0 = load_words(right), row1 = load_words(right + kLanes);
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const __m512i factor = _mm512_set1_epi32(static_cast<int>(left[r]));
      tile[r][0] = multiply_pairs(tile[r][0], factor, row0);
      tile[r][1] = multiply_pairs(tile[r][1], factor, row1);
    }
    left += 2 * kChunk;
    right += kPairColumns;
  }
}

/// One panel's corrected values, [kChunk][kPairColumns].
struct Values {
  alignas(64) float x[kChunk * kPairColumns];
  alignas(64) uint32_t weighted[kChunk / 2 * kPairColumns];  ///< pairs, times E and factor of k
};

/// tile[r] += matrix[r][j] x_j for j < first; -= with kMinus.
template <bool kMinus>
SLUICE_INLINE void add_earlier(const float* matrix, const float* x, int64_t first, Tile& tile) {
  for (int64_t j = 0; j < first; ++j) {
    const __m512 x0 = _mm512_load_ps(x + j * kPairColumns);
    const __m512 x1 = _mm512_load_ps(x + j * kPairColumns + kLanes);
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const __m512 a = _mm512_set1_ps(matrix[static_cast<int64_t>(r) * kChunk + j]);
      tile[r][0] =
          kMinus ? _mm512_fnmadd_ps(a, x0, tile[r][0]) : _mm512_fmadd_ps(a, x0, tile[r][0]);
      tile[r][1] =
          kMinus ? _mm512_fnmadd_ps(a, x1, tile[r][1]) : _mm512_fmadd_ps(a, x1, tile[r][1]);
    }
  }
}

/// Stores rows first.. of x, and the operand of the update: E_i f_i x_i in pairs of tokens.
SLUICE_INLINE void store_values(const PairChunk& chunk, int64_t first, const Tile& tile,
                                Values* values) {
  float* const x = values->x + first * kPairColumns;
  uint32_t* const weighted = values->weighted + first / 2 * kPairColumns;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; r += 2) {
    const int64_t t = first + static_cast<int64_t>(r);
    const __m512 low = _mm512_set1_ps(chunk.factors.E[t] * chunk.rows.k_factor[t]);
    const __m512 high = _mm512_set1_ps(chunk.factors.E[t + 1] * chunk.rows.k_factor[t + 1]);
    const auto both = static_cast<__mmask16>(t + 1 < chunk.n ? 0xffff : 0);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      _mm512_store_ps(x + (r * kVectors + c) * kLanes, tile[r][c]);
      _mm512_store_ps(x + ((r + 1) * kVectors + c) * kLanes, tile[r + 1][c]);
      _mm512_store_si512(
          weighted + (r / 2 * kVectors + c) * kLanes,
          pair_up(_mm512_mul_ps(low, tile[r][c]), _mm512_maskz_mul_ps(both, high, tile[r + 1][c])));
    }
  }
}

SLUICE_INLINE void solve_rows(const PairChunk& chunk, const uint32_t* pairs, int64_t first,
                              int64_t column, Values* values) {
  const float* const x = values->x;
  Tile tile;
  multiply(chunk.rows.qk_t + first, pairs, chunk.K, tile);
  const HeadFactors& factors = chunk.factors;
  const uint16_t* v = chunk.v + first * chunk.v_stride + column;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const int64_t t = first + static_cast<int64_t>(r);
    const __m512 beta = _mm512_set1_ps(factors.beta[t]);
    const __m512 decay = _mm512_set1_ps(factors.D[t] * chunk.rows.k_factor[t]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      const __m512 value = load_bfloat16(v + c * kLanes);
      tile[r][c] = _mm512_mul_ps(beta, _mm512_fnmadd_ps(decay, tile[r][c], value));
    }
    v += chunk.v_stride;
  }
  const float* A = chunk.A + first * kChunk;
  add_earlier<true>(A, x, first, tile);
  A += first;
  SLUICE_UNROLL
  for (size_t j = 0; j + 1 < kRows; ++j) {
    SLUICE_UNROLL
    for (size_t r = j + 1; r < kRows; ++r) {
      const __m512 a = _mm512_set1_ps(A[r * kChunk + j]);
      tile[r][0] = _mm512_fnmadd_ps(a, tile[j][0], tile[r][0]);
      tile[r][1] = _mm512_fnmadd_ps(a, tile[j][1], tile[r][1]);
    }
  }
  store_values(chunk, first, tile, values);
}

/// x of linear attention: v.
SLUICE_INLINE void copy_rows(const PairChunk& chunk, int64_t first, int64_t column,
                             Values* values) {
  const uint16_t* v = chunk.v + first * chunk.v_stride + column;
  Tile tile;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    tile[r][0] = load_bfloat16(v);
    tile[r][1] = load_bfloat16(v + kLanes);
    v += chunk.v_stride;
  }
  store_values(chunk, first, tile, values);
}

SLUICE_INLINE void output_rows(const PairChunk& chunk, const uint32_t* pairs, int64_t first,
                               int64_t column, const float* x) {
  Tile tile;
  multiply(chunk.rows.qk_t + kChunk + first, pairs, chunk.K, tile);
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const int64_t t = first + static_cast<int64_t>(r);
    const __m512 decay = _mm512_set1_ps(chunk.factors.D[t] * chunk.rows.q_factor[t]);
    tile[r][0] = _mm512_mul_ps(decay, tile[r][0]);
    tile[r][1] = _mm512_mul_ps(decay, tile[r][1]);
  }
  const float* P = chunk.P + first * kChunk;
  add_earlier<false>(P, x, first, tile);
  P += first;
  x += first * kPairColumns;
  SLUICE_UNROLL
  for (size_t j = 0; j < kRows; ++j) {
    const __m512 x0 = _mm512_load_ps(x + j * kPairColumns);
    const __m512 x1 = _mm512_load_ps(x + j * kPairColumns + kLanes);
    // WHY r from j: a later token's x may be NaN, and zeros above the diagonal would not stop it.
    SLUICE_UNROLL
    for (size_t r = j; r < kRows; ++r) {
      const __m512 p = _mm512_set1_ps(P[r * kChunk + j]);
      tile[r][0] = _mm512_fmadd_ps(p, x0, tile[r][0]);
      tile[r][1] = _mm512_fmadd_ps(p, x1, tile[r][1]);
    }
  }
  constexpr int kSubnormal = 0x20;
  unsigned subnormal = 0;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    subnormal |= _mm512_fpclass_ps_mask(tile[r][0], kSubnormal);
    subnormal |= _mm512_fpclass_ps_mask(tile[r][1], kSubnormal);
  }
  uint16_t* o = chunk.o + first * chunk.o_stride + column;
  if (subnormal == 0) {
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      _mm512_storeu_si512(o,
                          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(tile[r][1], tile[r][0])));
      o += chunk.o_stride;
    }
    return;
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    store_exactly(tile[r][0], o);
    store_exactly(tile[r][1], o + kLanes);
    o += chunk.o_stride;
  }
}

/// Rows first..first+7 of the state, and their pairs.
SLUICE_INLINE void update_rows(const PairChunk& chunk, const Values& values, int64_t first,
                               float* panel, uint32_t* pairs) {
  Tile tile;
  float* const rows = panel + first * kPairColumns;
  const float* const decays = chunk.decay + first;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    const __m512 decay = _mm512_set1_ps(decays[r]);
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      tile[r][c] = _mm512_mul_ps(decay, _mm512_load_ps(rows + (r * kVectors + c) * kLanes));
    }
  }
  const uint32_t* k = chunk.rows.pairs + first;
  const uint32_t* x = values.weighted;
  for (int64_t t = 0; t < chunk.n; t += 2) {
    const __m512i x0 = load_words(x), x1 = load_words(x + kLanes);
    SLUICE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const __m512i factor = _mm512_set1_epi32(static_cast<int>(k[r]));
      tile[r][0] = multiply_pairs(tile[r][0], factor, x0);
      tile[r][1] = multiply_pairs(tile[r][1], factor, x1);
    }
    k += chunk.K;
    x += kPairColumns;
  }
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      _mm512_store_ps(rows + (r * kVectors + c) * kLanes, tile[r][c]);
    }
  }
  uint32_t* const out = pairs + first / 2 * kPairColumns;
  SLUICE_UNROLL
  for (size_t r = 0; r < kRows; r += 2) {
    SLUICE_UNROLL
    for (size_t c = 0; c < kVectors; ++c) {
      _mm512_store_si512(out + r / 2 * kPairColumns + c * kLanes,
                         pair_up(tile[r][c], tile[r + 1][c]));
    }
  }
}

}  // namespace

void round_panel(float* panel, int64_t K) noexcept {
  auto* const pairs = reinterpret_cast<uint32_t*>(panel + K * kPairColumns);
  for (int64_t k = 0; k < K; k += 2) {
    for (int64_t c = 0; c < kPairColumns; c += kLanes) {
      const float* const at = panel + k * kPairColumns + c;
      _mm512_store_si512(pairs + k / 2 * kPairColumns + c,
                         pair_up(_mm512_load_ps(at), _mm512_load_ps(at + kPairColumns)));
    }
  }
}

void advance_pair_panel(const PairChunk& chunk, int64_t column, float* panel) noexcept {
  Values values;
  auto* const pairs = reinterpret_cast<uint32_t*>(panel + chunk.K * kPairColumns);
  constexpr int64_t kStep = kRows;
  for (int64_t first = 0; first < chunk.n; first += kStep) {
    if (chunk.delta_rule) {
      solve_rows(chunk, pairs, first, column, &values);
    } else {
      copy_rows(chunk, first, column, &values);
    }
  }
  for (int64_t first = 0; first < chunk.n; first += kStep) {
    output_rows(chunk, pairs, first, column, values.x);
  }
  int64_t fetched = 0;
  for (int64_t first = 0; first < chunk.K; first += kStep) {
    const int64_t end = chunk.ahead.n * (first + kStep) / chunk.K;
    fetch_rows(chunk.ahead, column / kPairColumns, fetched, end);
    fetched = end;
    update_rows(chunk, values, first, panel, pairs);
  }
}

#else

void round_panel(float*, int64_t) noexcept {}
void advance_pair_panel(const PairChunk&, int64_t, float*) noexcept {}

#endif
}  // namespace sluice::cpu
SLUICE_PAIRS_END

// WHY here: it runs on machines without the instructions.
bool sluice::cpu::has_pairs() noexcept {
#if SLUICE_HAS_PAIRS
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}
