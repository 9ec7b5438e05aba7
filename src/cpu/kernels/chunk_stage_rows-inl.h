// Brings the rows that a stage of the chunk form works on to float32, and has what several stages
// do with them.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_STAGE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_STAGE_ROWS_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_STAGE_ROWS_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_STAGE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_stage.hpp"
#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/stage_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

/// The matrices of an item's scratch, and what several stages do with them.
class StageRows {
 public:
  StageRows(const core::ChunkStageProblem& problem, const StageScratch& layout,
            float* scratch) noexcept
      : p_(problem), layout_(layout), scratch_(scratch) {}

 protected:
  float* at(int64_t offset) const noexcept { return scratch_ + offset; }
  RightMatrix k_t() const noexcept { return {at(layout_.k_t), layout_.C_stride}; }
  LeftMatrix rows_of(int64_t offset, int64_t stride) const noexcept {
    return {at(offset), stride, 1};
  }
  LeftMatrix square(int64_t offset) const noexcept { return rows_of(offset, layout_.C_stride); }

  float* high() const noexcept { return at(layout_.sums); }
  float* low() const noexcept { return high() + layout_.C_stride; }
  float* until() const noexcept { return low() + layout_.C_stride; }    ///< exp(G_i)
  float* since() const noexcept { return until() + layout_.C_stride; }  ///< exp(G_n - G_i)
  float* beta() const noexcept { return since() + layout_.C_stride; }

  static int64_t tile_rows(int64_t n) noexcept {
    return round_up(n, static_cast<int64_t>(kSmallRows));
  }

  /// Rows of a chunk from `head`, columns first .. first + count - 1, as float32.
  void load_rows(const core::Tensor& view, const StageChunk& chunk, int64_t head, int64_t first,
                 int64_t count, float* to, int64_t stride) const noexcept {
    const core::TokenRange& t = chunk.tokens;
    for (int64_t i = 0; i < t.size(); ++i) {
      float* const row = to + i * stride;
      read_dense(core::address(view, t.batch, t.begin + i, head, first), view.dtype, count, row);
      std::fill(row + count, row + stride, 0.0f);
    }
    std::fill(to + t.size() * stride, to + tile_rows(t.size()) * stride, 0.0f);
  }
  void store_rows(const float* from, int64_t stride, const StageChunk& chunk, int64_t head,
                  int64_t first, int64_t count, const core::Tensor& view) const noexcept {
    const core::TokenRange& t = chunk.tokens;
    for (int64_t i = 0; i < t.size(); ++i) {
      write_dense(from + i * stride, count, core::address(view, t.batch, t.begin + i, head, first),
                  view.dtype);
    }
  }

  void load_keys(const core::Tensor& view, const StageChunk& chunk, int64_t key_head,
                 int64_t to) const noexcept {
    load_rows(view, chunk, key_head, 0, p_.K, at(to), layout_.K_stride);
  }
  /// k of the chunk, and its transpose.
  void load_k(const StageChunk& chunk, int64_t key_head) const noexcept {
    load_keys(p_.k, chunk, key_head, layout_.k);
    transpose(at(layout_.k), tile_rows(chunk.count()), p_.K, layout_.K_stride, at(layout_.k_t),
              layout_.C_stride);
    for (int64_t i = 0; i < p_.K; ++i) {
      float* const row = at(layout_.k_t) + i * layout_.C_stride;
      std::fill(row + tile_rows(chunk.count()), row + layout_.C_stride, 0.0f);
    }
  }

  /// products = left k^T on and below the diagonal.
  void token_products(int64_t left, int64_t n) const noexcept {
    product<false, true>(rows_of(left, layout_.K_stride), k_t(), tile_rows(n), layout_.C_stride,
                         p_.K, Into::kSet, {at(layout_.products), layout_.C_stride});
  }

  void load_sums(const StageChunk& chunk, int64_t head) const noexcept {
    const core::TokenRange& t = chunk.tokens;
    std::fill(high(), high() + 2 * layout_.C_stride, 0.0f);
    double sum = 0;
    const bool summed = sums_given();
    for (int64_t i = 0; i < t.size(); ++i) {
      if (summed) {
        high()[i] = core::load_float(core::address(p_.g_cumsum, t.batch, t.begin + i, head),
                                     core::kFloat32);
      } else if (core::present(p_.gate)) {
        sum += clamped(
            core::load_float(core::address(p_.gate, t.batch, t.begin + i, head), p_.gate.dtype));
        high()[i] = static_cast<float>(sum);
        const double rest = sum - static_cast<double>(high()[i]);
        low()[i] = std::isfinite(sum) ? static_cast<float>(rest) : 0.0f;
      }
    }
  }
  /// Whether g_cumsum is an input.
  bool sums_given() const noexcept {
    return core::present(p_.g_cumsum) && p_.stage != SLUICE_STAGE_CUMSUM_KKT;
  }
  // WHY: written so that NaN passes, where std::max would swallow it.
  static double clamped(float g) noexcept {
    return static_cast<double>(g < kSmallestGate ? kSmallestGate : g);
  }

  /// exp(G_i) and exp(G_n - G_i), from the sums loaded.
  void decay_ends(int64_t n) const noexcept {
    cpu::HWY_NAMESPACE::decay_ends(sums(), n, layout_.C_stride, until(), since());
  }
  DecaySums sums() const noexcept { return {high(), low()}; }

  void load_beta(const StageChunk& chunk, int64_t head) const noexcept {
    const core::TokenRange& t = chunk.tokens;
    std::fill(beta(), beta() + layout_.C_stride, 0.0f);
    for (int64_t i = 0; i < t.size(); ++i) {
      beta()[i] =
          !core::present(p_.beta)
              ? 1.0f
              : core::load_float(core::address(p_.beta, t.batch, t.begin + i, head), p_.beta.dtype);
    }
  }

  /// left_ij = factor_i exp(G_i - G_j) products_ij for j < i + columns_on, else 0; columns_on is 0
  /// below the diagonal, 1 with it.
  void decayed_products(int64_t n, const float* factor, int64_t columns_on) const noexcept {
    cpu::HWY_NAMESPACE::decayed_products(sums(), factor, tile_rows(n), columns_on, layout_.C_stride,
                                         at(layout_.products), at(layout_.left));
  }

  /// out = scale (diag(exp G) q S + left values), n rows of V_stride columns; values and sums of
  /// the head, q and the products of the chunk are loaded.
  void read_out(int64_t n) const noexcept {
    const int64_t stride = layout_.V_stride;
    std::fill(beta(), beta() + layout_.C_stride, 1.0f);
    decayed_products(n, beta(), 1);
    read_state(n);
    float* const out = at(layout_.out);
    for (int64_t i = 0; i < tile_rows(n); ++i) scale_row(until()[i], stride, out + i * stride);
    add_values(n);
  }
  /// out = q S.
  void read_state(int64_t n) const noexcept {
    const int64_t stride = layout_.V_stride;
    product<false>(rows_of(layout_.q, layout_.K_stride), {at(layout_.state), stride}, tile_rows(n),
                   stride, p_.K, Into::kSet, {at(layout_.out), stride});
  }
  /// out = scale (out + left values).
  void add_values(int64_t n) const noexcept {
    const int64_t stride = layout_.V_stride;
    float* const out = at(layout_.out);
    product<true>(square(layout_.left), {at(layout_.values), stride}, tile_rows(n), stride, n,
                  Into::kAdd, {out, stride});
    const float scale = static_cast<float>(p_.scale);
    for (int64_t i = 0; i < n; ++i) scale_row(scale, stride, out + i * stride);
  }

  sluice_state_layout state_layout() const noexcept {
    return static_cast<sluice_state_layout>(p_.state.layout);
  }

  const core::ChunkStageProblem& p_;
  const StageScratch& layout_;
  float* scratch_;
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_STAGE_ROWS_INL_H_
