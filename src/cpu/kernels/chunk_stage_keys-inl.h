// Computes what key-wise gates make of a chunk in the stages of the chunk form: rows of q and k with
// their decays, and the products of tokens, in which each channel has a decay of its own.
// Math    G_i in R^K:  M_ij = sum over channels of k_i exp(G_i - G_j) k_j, and with q_i in place of
//         k_i. Blocks of 16 tokens: exp(G_i - G_j) = exp(G_i - G_n) exp(G_n - G_j), n the first
//         token of i's block, where j lies in a block before it; inside a block running products.
// Numbers NUM: G is a sum in double, and a factor the exponential of a difference, rounded once.
//         Where gates decay no factor is above 1.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_STAGE_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_STAGE_KEYS_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_STAGE_KEYS_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_STAGE_KEYS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_keys-inl.h"
#include "cpu/kernels/chunk_stage_rows-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class KeyStageRows : protected StageRows {
 protected:
  using StageRows::StageRows;

  /// G_i, K of them and zeros to the stride.
  double* key_sums(int64_t i) const noexcept {
    return reinterpret_cast<double*>(at(layout_.key_sums)) + i * layout_.K_stride;
  }

  void load_key_sums(const StageChunk& chunk, int64_t head) const noexcept {
    const core::TokenRange& t = chunk.tokens;
    const core::Tensor& view = sums_given() ? p_.g_cumsum : p_.gate;
    float* const row = at(layout_.sums);
    for (int64_t i = 0; i < t.size(); ++i) {
      read_dense(core::address(view, t.batch, t.begin + i, head, 0), view.dtype, p_.K, row);
      const double* const before = i > 0 ? key_sums(i - 1) : nullptr;
      double* const G = key_sums(i);
      for (int64_t l = 0; l < p_.K; ++l) {
        const double sum = before == nullptr ? 0.0 : before[l];
        G[l] = sums_given() ? static_cast<double>(row[l]) : sum + clamped(row[l]);
      }
      std::fill(G + p_.K, G + layout_.K_stride, 0.0);
    }
  }
  void store_key_sums(const StageChunk& chunk, int64_t head) const noexcept {
    const core::TokenRange& t = chunk.tokens;
    float* const row = at(layout_.sums);
    for (int64_t i = 0; i < t.size(); ++i) {
      for (int64_t l = 0; l < p_.K; ++l) row[l] = static_cast<float>(key_sums(i)[l]);
      write_dense(row, p_.K, core::address(p_.g_cumsum, t.batch, t.begin + i, head, 0),
                  core::kFloat32);
    }
  }

  /// to = exp(G_i - G_j) from, by channel; j = kStart: exp(G_i).
  static constexpr int64_t kStart = -1;
  void decay_row(int64_t i, int64_t j, const float* from, float* to) const noexcept {
    const FloatTag d;
    constexpr auto kStep = static_cast<int64_t>(kTileLanes);
    const double* const G = key_sums(i);
    const double* const H = j == kStart ? nullptr : key_sums(j);
    HWY_ALIGN float x[kTileLanes];
    for (int64_t l = 0; l < layout_.K_stride; l += kStep) {
      for (int64_t m = l; m < l + kStep; ++m) {
        x[m - l] = static_cast<float>(H == nullptr ? G[m] : G[m] - H[m]);
      }
      hn::StoreU(hn::Mul(exp_any(hn::Load(d, x)), hn::LoadU(d, from + l)), d, to + l);
    }
  }

  /// left = q k^T or k k^T with their decays, on the diagonal too or below it alone; else zeros.
  /// rows: of q or k, n of them. What is in `out` is lost.
  void decayed_key_products(int64_t rows, int64_t n, bool diagonal) const noexcept {
    for (int64_t first = 0; first < n; first += kChunk) {
      const int64_t count = std::min(n - first, kChunk);
      if (first > 0) products_with_earlier(at(rows), first, count);
      products_of_block(at(rows), first, count, diagonal);
    }
    const int64_t stride = layout_.C_stride;
    std::fill(at(layout_.left) + n * stride, at(layout_.left) + tile_rows(n) * stride, 0.0f);
  }

  /// out = scale (diag(exp G) q S + left values), as read_out() does; q is used up.
  void read_key_out(int64_t n) const noexcept {
    decayed_key_products(layout_.q, n, true);
    for (int64_t i = 0; i < n; ++i) {
      float* const row = at(layout_.q) + i * layout_.K_stride;
      decay_row(i, kStart, row, row);
    }
    read_state(n);
    add_values(n);
  }

 private:
  /// Columns 0 .. first - 1 of the block's rows of `left`.
  void products_with_earlier(const float* rows, int64_t first, int64_t count) const noexcept {
    const int64_t stride = layout_.K_stride, columns = round_up(first, kStageColumns);
    float* const block = at(layout_.key_block);
    float* const earlier = at(layout_.out);
    for (int64_t i = 0; i < count; ++i) {
      decay_row(first + i, first, rows + (first + i) * stride, block + i * stride);
    }
    std::fill(block + count * stride, block + tile_rows(count) * stride, 0.0f);
    for (int64_t j = 0; j < first; ++j) {
      decay_row(first, j, at(layout_.k) + j * stride, earlier + j * stride);
    }
    transpose(earlier, first, p_.K, stride, at(layout_.k_t), layout_.C_stride);
    product<false>(rows_of(layout_.key_block, stride), k_t(), tile_rows(count), columns, p_.K,
                   Into::kSet, {at(layout_.left) + first * layout_.C_stride, layout_.C_stride});
  }

  /// The columns from `first` on.
  void products_of_block(const float* rows, int64_t first, int64_t count,
                         bool diagonal) const noexcept {
    const int64_t stride = layout_.K_stride, at_first = first * stride;
    float* const alpha = at(layout_.key_alpha);
    float* const block = at(layout_.key_block);
    std::fill(block, block + stride, 1.0f);
    for (int64_t i = 1; i < count; ++i) {
      decay_row(first + i, first + i - 1, block, alpha + i * stride);
    }
    std::fill(alpha + count * stride, alpha + kChunk * stride, 0.0f);
    KeyChunk chunk{count, stride, rows + at_first, at(layout_.k) + at_first, alpha};
    chunk.carried = block;
    float* const with_rows = at(layout_.key_pairs);
    key_products<false>(chunk, nullptr, with_rows);
    for (int64_t i = 0; i < count; ++i) {
      float* const row = at(layout_.left) + (first + i) * layout_.C_stride;
      const int64_t columns = diagonal ? i + 1 : i;
      std::copy_n(with_rows + i * kChunk, columns, row + first);
      std::fill(row + first + columns, row + layout_.C_stride, 0.0f);
    }
  }
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_STAGE_KEYS_INL_H_
