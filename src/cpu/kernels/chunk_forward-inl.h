// Computes chunks of prefill, one panel of the state after the other.
// Math    Per chunk of n <= 16 tokens and value head, S the state before it, G_i the sums of g in
//         it, Gamma_ij = exp(G_i - G_j); linear attention has x_i = v_i:
//           x_i = beta_i (v_i - exp(G_i) S^T k_i - sum over j < i of Gamma_ij (k_i . k_j) x_j)
//           o_i = exp(G_i) S^T q_i + sum over j <= i of Gamma_ij (q_i . k_j) x_j   (q is scaled)
//           S  <- exp(G_n) S + sum over j of exp(G_n - G_j) k_j x_j^T
//         Key-wise gates: chunk_keys-inl.h puts all exponentials but that of S into k and q.
// Roles   One item is one sequence with some of its key heads (or value heads or columns of one).
//         It turns to the next key head every kBlock tokens: rows of all heads share pages.
// Memory  Per panel of kTileColumns columns, 16 KiB of state in L1 for K = 128: products, solve,
//         output and update run on it in turn, and the next rows are prefetched meanwhile.
// Numbers NUM: Gamma is the running product of alpha, which never overflows and never divides; G is
//         summed in double, so that exp(G_n) carries one rounding per chunk.
// Floor   6 K V multiply-adds (FLOP) per token and value head; see docs/kernels/cpu.md.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_FORWARD_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_FORWARD_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_gates-inl.h"
#include "cpu/kernels/chunk_keys-inl.h"
#include "cpu/kernels/chunk_pairs.hpp"
#include "cpu/kernels/chunk_plan.hpp"
#include "cpu/kernels/chunk_states-inl.h"
#include "cpu/kernels/chunk_tiles-inl.h"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Runs one item; the scratch of its worker is free of other use meanwhile.
class ChunkRun : ItemStates {
 public:
  using ItemStates::ItemStates;

  void run() noexcept {
    if (slots_.padded) return write_zeros();
    for (int64_t key = 0; key < item_.key_heads; ++key) load_states(key);
    for (int64_t first = 0; first < range_.size(); first += kBlock) {
      const int64_t end = std::min(first + kBlock, range_.size());
      for (int64_t key = 0; key < item_.key_heads; ++key) advance_block(key, first, end);
    }
    if (slots_.write < 0) return;
    for (int64_t key = 0; key < item_.key_heads; ++key) {
      store_states(key, problem_.state.final, slots_.write);
    }
  }

 private:
  /// Tokens [first, end) of the sequence for the item's key head `key`.
  void advance_block(int64_t key, int64_t first, int64_t end) const noexcept {
    int64_t done = first;
    while (done < end) {
      const int64_t n = std::min(kChunk, end - done);
      pack(key, range_.begin + done, n);
      Place next{key, done + n};
      if (next.token >= end) {
        next = key + 1 < item_.key_heads ? Place{key + 1, first} : Place{0, end};
      }
      for (int64_t index = 0; index < item_.heads; ++index) {
        advance(key, index, range_.begin + done, n, ahead_of(Place{key, done}, next, index));
      }
      done += n;
      store_checkpoint(key, done);
    }
  }

  /// A chunk of a key head.
  struct Place {
    int64_t key, token;
  };

  /// What is needed after value head `index` at `here`, where `next` is the chunk after it.
  RowsAhead ahead_of(Place here, Place next, int64_t index) const noexcept {
    RowsAhead ahead;
    const bool last = index + 1 == item_.heads;
    const Place place = last ? next : here;
    const int64_t token = range_.begin + place.token;
    const int64_t h = value_head(place.key, last ? 0 : index + 1);
    ahead.n = std::min(kChunk, range_.size() - place.token);
    if (ahead.n <= 0) return ahead;
    ahead.v = rows_ahead(problem_.v, token, h, item_.first_column, item_.columns);
    ahead.o = rows_ahead(problem_.o, token, h, item_.first_column, item_.columns);
    if (plan_.key_wise) ahead.gate = rows_ahead(problem_.key_gate, token, h, 0, problem_.K);
    if (index == 0 && next.token < range_.size()) {
      const int64_t head = key_head(next.key);
      ahead.n = std::min(kChunk, range_.size() - next.token);
      ahead.k = rows_ahead(problem_.k, range_.begin + next.token, head, 0, problem_.K);
      ahead.q = rows_ahead(problem_.q, range_.begin + next.token, head, 0, problem_.K);
    }
    return ahead;
  }

  /// k and q of the chunk: converted, normalised, scaled, transposed; and their products.
  void pack(int64_t key, int64_t token, int64_t n) const noexcept {
    if (plan_.pairs && !plan_.key_wise) {
      return pack_pairs(pair_source(key, token, n), pair_rows());
    }
    const int64_t K = problem_.K, stride = plan_.K_rows;
    const int64_t rows = round_up(n, static_cast<int64_t>(kSmallRows));
    float* const k = scratch(plan_.k_rows);
    float* const q = scratch(plan_.q_rows);
    for (int64_t t = 0; t < n; ++t) {
      read_dense(core::address(problem_.k, range_.batch, token + t, key_head(key), 0),
                 problem_.k.dtype, K, k + t * stride);
      const void* const from = core::address(problem_.q, range_.batch, token + t, key_head(key), 0);
      if (core::same(problem_.q.dtype, core::kFloat32) && problem_.qk_norm != SLUICE_QK_NORM_L2) {
        copy_scaled(static_cast<const float*>(from), q + t * stride);
      } else {
        read_dense(from, problem_.q.dtype, K, q + t * stride);
        scale_and_normalise(q + t * stride, k + t * stride);
      }
      std::fill(k + t * stride + K, k + (t + 1) * stride, 0.0f);
      std::fill(q + t * stride + K, q + (t + 1) * stride, 0.0f);
    }
    std::fill(k + n * stride, k + kChunk * stride, 0.0f);
    std::fill(q + n * stride, q + kChunk * stride, 0.0f);
    if (plan_.key_wise) return;
    transpose(k, kChunk, K, stride, scratch(plan_.k_t), kChunk);
    transpose(q, kChunk, K, stride, scratch(plan_.q_t), kChunk);
    token_products(scratch(plan_.q_t), scratch(plan_.k_t), K, rows, scratch(plan_.qk));
    if (problem_.rule == SLUICE_RULE_GATED_DELTA) {
      token_products(scratch(plan_.k_t), scratch(plan_.k_t), K, rows, scratch(plan_.kk));
    }
  }

  /// PERF one pass in place of two: 1 % for K = V = 64.
  void copy_scaled(const float* HWY_RESTRICT from, float* HWY_RESTRICT q) const noexcept {
    constexpr int64_t kStep = static_cast<int64_t>(kTileLanes);
    const FloatTag d;
    const float scale = static_cast<float>(problem_.scale);
    int64_t i = 0;
    for (; i + kStep <= problem_.K; i += kStep) {
      hn::StoreU(hn::Mul(hn::Set(d, scale), hn::LoadU(d, from + i)), d, q + i);
    }
    for (; i < problem_.K; ++i) q[i] = scale * from[i];
  }

  void scale_and_normalise(float* q, float* k) const noexcept {
    const float scale = static_cast<float>(problem_.scale);
    if (problem_.qk_norm == SLUICE_QK_NORM_L2) {
      const float eps = static_cast<float>(problem_.l2norm_eps);
      l2_normalise_row(q, problem_.K, eps, scale, q);
      l2_normalise_row(k, problem_.K, eps, 1.0f, k);
    } else {
      for (int64_t i = 0; i < problem_.K; ++i) q[i] *= scale;
    }
  }

  /// Decays, write strengths and token matrices of value head h.
  void prepare(int64_t token, int64_t n, int64_t h, HeadFactors* factors) const noexcept {
    float alpha[kChunk];
    head_factors({problem_, range_.batch, token, n, h}, factors, alpha);
    if (plan_.key_wise) return prepare_keys(token, n, h, *factors);
    token_matrices(alpha, factors->beta, scratch(plan_.kk), scratch(plan_.qk), scratch(plan_.A),
                   scratch(plan_.P));
    std::fill_n(scratch(plan_.decay), plan_.K_rows, factors->D[n - 1]);
  }

  /// The same with key-wise gates, whose decays go into the rows of q and k.
  void prepare_keys(int64_t token, int64_t n, int64_t h,
                    const HeadFactors& factors) const noexcept {
    const int64_t K = problem_.K, stride = plan_.K_rows;
    const core::Tensor &gate = problem_.key_gate, &bias = problem_.dt_bias;
    KeyChunk chunk{n, stride, scratch(plan_.q_rows), scratch(plan_.k_rows), scratch(plan_.alpha)};
    chunk.decayed_q = scratch(plan_.decayed_q);
    chunk.decayed_k = chunk.carried = scratch(plan_.decayed_k);
    chunk.written_k = scratch(plan_.written_k);
    chunk.decay = scratch(plan_.decay);
    std::fill_n(chunk.alpha, kChunk * stride, 0.0f);
    for (int64_t t = 0; t < n; ++t) {
      read_dense(core::address(gate, range_.batch, token + t, h, 0), gate.dtype, K,
                 chunk.alpha + t * stride);
    }
    HWY_ALIGN float biases[kMaxPanelRows] = {};
    if (core::present(bias)) read_dense(core::address(bias, h, 0), bias.dtype, K, biases);
    key_alphas(gate_rule(problem_, h), biases, chunk);
    decay_key_rows(chunk);
    if (plan_.pairs) {
      pack_key_pairs({chunk.decayed_k, chunk.decayed_q, chunk.written_k, K}, pair_rows());
    } else {
      transpose(chunk.decayed_k, kChunk, K, stride, scratch(plan_.k_t), kChunk);
      transpose(chunk.decayed_q, kChunk, K, stride, scratch(plan_.q_t), kChunk);
    }
    if (problem_.rule == SLUICE_RULE_GATED_DELTA) {
      return key_matrices(chunk, factors.beta, scratch(plan_.A), scratch(plan_.P));
    }
    key_products<false>(chunk, nullptr, scratch(plan_.P));
  }

  /// One chunk of value head `index` of key head `key`.
  void advance(int64_t key, int64_t index, int64_t token, int64_t n,
               const RowsAhead& ahead) const noexcept {
    if (plan_.pairs) return advance_pairs(key, index, token, n, ahead);
    const int64_t h = value_head(key, index);
    HeadChunk chunk;
    chunk.n = n;
    chunk.rows = round_up(n, static_cast<int64_t>(kSmallRows));
    chunk.K = problem_.K;
    chunk.delta_rule = problem_.rule == SLUICE_RULE_GATED_DELTA;
    chunk.k_rows = scratch(plan_.key_wise ? plan_.written_k : plan_.k_rows);
    chunk.decay = scratch(plan_.decay);
    chunk.k_stride = plan_.K_rows;
    chunk.k_t = scratch(plan_.k_t);
    chunk.q_t = scratch(plan_.q_t);
    chunk.A = scratch(plan_.A);
    chunk.P = scratch(plan_.P);
    chunk.x = scratch(plan_.x);
    chunk.x_stride = plan_.V_columns;
    chunk.xe = scratch(plan_.xe);
    prepare(token, n, h, &chunk.factors);
    chunk.ahead = ahead;
    if (chunk.delta_rule && n == chunk.rows && item_.columns % kTileColumns == 0) {
      if (core::same(problem_.v.dtype, core::kFloat32) &&
          core::same(problem_.o.dtype, core::kFloat32)) {
        return advance_direct<float>(key, index, token, chunk);
      }
      if (core::same(problem_.v.dtype, core::kBFloat16) &&
          core::same(problem_.o.dtype, core::kBFloat16)) {
        return advance_direct<uint16_t>(key, index, token, chunk);
      }
    }
    load_values(token, h, chunk);
    const PanelRows<const float> v{chunk.x, chunk.x_stride};
    const PanelRows<float> o{scratch(plan_.o), chunk.x_stride};
    advance_panels(key, index, v, o, chunk);
    for (int64_t t = 0; t < n; ++t) {
      write_dense(o.row(t), item_.columns,
                  core::address(problem_.o, range_.batch, token + t, h, item_.first_column),
                  problem_.o.dtype);
    }
  }

  PairSource pair_source(int64_t key, int64_t token, int64_t n) const noexcept {
    const auto row = [&](const core::Tensor& view) {
      return static_cast<const uint16_t*>(
          core::address(view, range_.batch, token, key_head(key), 0));
    };
    return {row(problem_.q),
            problem_.q.stride[1],
            row(problem_.k),
            problem_.k.stride[1],
            n,
            problem_.K,
            static_cast<float>(problem_.scale),
            problem_.qk_norm == SLUICE_QK_NORM_L2,
            static_cast<float>(problem_.l2norm_eps)};
  }

  PairRows pair_rows() const noexcept {
    return {reinterpret_cast<uint32_t*>(scratch(plan_.k_t)),
            // With key-wise gates the rows of k serve several value heads.
            reinterpret_cast<uint32_t*>(scratch(plan_.key_wise ? plan_.q_t : plan_.k_rows)),
            scratch(plan_.kk), scratch(plan_.qk), scratch(plan_.k_factor), scratch(plan_.q_factor)};
  }

  /// advance() on bfloat16 dot products.
  void advance_pairs(int64_t key, int64_t index, int64_t token, int64_t n,
                     const RowsAhead& ahead) const noexcept {
    const int64_t h = value_head(key, index);
    const size_t row_bytes = static_cast<size_t>(item_.columns) * sizeof(uint16_t);
    PairChunk chunk;
    chunk.n = n;
    chunk.K = problem_.K;
    chunk.delta_rule = problem_.rule == SLUICE_RULE_GATED_DELTA;
    chunk.rows = pair_rows();
    chunk.A = scratch(plan_.A);
    chunk.P = scratch(plan_.P);
    chunk.decay = scratch(plan_.decay);
    chunk.ahead = ahead;
    prepare(token, n, h, &chunk.factors);
    const auto address = [&](const core::Tensor& view, int64_t t) {
      return static_cast<uint16_t*>(
          core::address(view, range_.batch, token + t, h, item_.first_column));
    };
    chunk.v = address(problem_.v, 0);
    chunk.v_stride = problem_.v.stride[1];
    chunk.o = address(problem_.o, 0);
    chunk.o_stride = problem_.o.stride[1];
    if (n < kChunk) {
      auto* const v = reinterpret_cast<uint16_t*>(scratch(plan_.x));
      std::fill_n(v, kChunk * item_.columns, uint16_t{0});
      for (int64_t t = 0; t < n; ++t) {
        std::memcpy(v + t * item_.columns, address(problem_.v, t), row_bytes);
      }
      chunk.v = v;
      chunk.o = reinterpret_cast<uint16_t*>(scratch(plan_.o));
      chunk.v_stride = chunk.o_stride = item_.columns;
    }
    for (int64_t column = 0; column < item_.columns; column += kPairColumns) {
      advance_pair_panel(chunk, column, panel(key, index, column));
    }
    for (int64_t t = 0; n < kChunk && t < n; ++t) {
      std::memcpy(address(problem_.o, t), chunk.o + t * item_.columns, row_bytes);
    }
  }

  template <class Element>
  void advance_panels(int64_t key, int64_t index, PanelRows<const Element> v, PanelRows<Element> o,
                      const HeadChunk& chunk) const noexcept {
    for (int64_t column = 0; column < item_.columns; column += kTileColumns) {
      advance_panel<Element>(chunk, {v.first + column, v.stride}, {o.first + column, o.stride},
                             column, panel(key, index, column));
    }
  }

  /// v and o where they lie.
  template <class Element>
  void advance_direct(int64_t key, int64_t index, int64_t token,
                      const HeadChunk& chunk) const noexcept {
    const int64_t h = value_head(key, index);
    const core::Tensor& v = problem_.v;
    const core::Tensor& o = problem_.o;
    const PanelRows<const Element> from{
        static_cast<const Element*>(core::address(v, range_.batch, token, h, item_.first_column)),
        v.stride[1]};
    const PanelRows<Element> to{
        static_cast<Element*>(core::address(o, range_.batch, token, h, item_.first_column)),
        o.stride[1]};
    advance_panels<Element>(key, index, from, to, chunk);
  }

  /// Rows of `tensor` at `head` that come next.
  AheadRows rows_ahead(const core::Tensor& tensor, int64_t token, int64_t head, int64_t column,
                       int64_t columns) const noexcept {
    const int64_t bytes = core::element_size(tensor.dtype);
    const int64_t panels = (item_.columns + kTileColumns - 1) / kTileColumns;
    return {static_cast<const std::byte*>(core::address(tensor, range_.batch, token, head, column)),
            tensor.stride[1] * bytes, (columns * bytes + panels - 1) / panels};
  }

  void load_values(int64_t token, int64_t h, const HeadChunk& chunk) const noexcept {
    for (int64_t t = 0; t < chunk.n; ++t) {
      float* const x = chunk.x + t * chunk.x_stride;
      read_dense(core::address(problem_.v, range_.batch, token + t, h, item_.first_column),
                 problem_.v.dtype, item_.columns, x);
      std::fill(x + item_.columns, x + chunk.x_stride, 0.0f);
    }
    std::fill(chunk.x + chunk.n * chunk.x_stride, chunk.x + chunk.rows * chunk.x_stride, 0.0f);
  }
};

void chunk_item(const ChunkItem& item) { ChunkRun(item).run(); }

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_FORWARD_INL_H_
