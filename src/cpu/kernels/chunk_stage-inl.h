// Computes the stages of the chunk form.
// Math    docs/math.md (4) to (11), one stage a call; see sluice_chunk_stage_args.
// Roles   An item is a chunk with a key head and all its value heads, or, where a state is carried,
//         a sequence with some columns of a value head's state.
// Memory  Rows become float32 in scratch once an item; 300 KiB for C = 64, K = V = 128.
// Numbers NUM: G is a pair of floats (a sum in double), so that differences of strong gates keep
//         float32's precision; g_cumsum as an input has it or has not.
// Floor   2 K V, 2 C K and C V multiply-adds a token, by stage; see docs/stages.md.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_STAGE_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_STAGE_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_STAGE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_stage_keys-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The stages whose chunks know nothing of each other.
class ChunkStage : KeyStageRows {
 public:
  explicit ChunkStage(const StageChunkItem& item) noexcept
      : KeyStageRows(item.problem, item.layout, item.scratch),
        chunk_(item.chunk),
        lane_(item.lane) {}

  void run() const noexcept {
    switch (p_.stage) {
      case SLUICE_STAGE_CHUNK_CUMSUM:
        return cumsum();
      case SLUICE_STAGE_SOLVE_TRIL:
        solve(lane_);
        return store_triangle(lane_);
      case SLUICE_STAGE_SCALED_DOT_KKT:
      case SLUICE_STAGE_CUMSUM_KKT:
        load_k(chunk_, lane_);
        if (!p_.key_gates) token_products(layout_.k, chunk_.count());
        break;
      case SLUICE_STAGE_WY_FAST:
      case SLUICE_STAGE_SOLVE_WY:
        load_keys(p_.k, chunk_, lane_, layout_.k);
        break;
      default:
        load_k(chunk_, lane_);
        if (p_.key_gates) break;
        load_keys(p_.q, chunk_, lane_, layout_.q);
        token_products(layout_.q, chunk_.count());
    }
    const bool block = p_.head_map == SLUICE_HEAD_MAP_BLOCK;
    for (int64_t i = 0; i < p_.r; ++i) {
      stage_of_head(block ? lane_ * p_.r + i : lane_ + i * p_.H);
    }
  }

 private:
  void stage_of_head(int64_t head) const noexcept {
    p_.key_gates ? load_key_sums(chunk_, head) : load_sums(chunk_, head);
    switch (p_.stage) {
      case SLUICE_STAGE_CUMSUM_KKT:
        store_sums(head);
        return kkt(head);
      case SLUICE_STAGE_SCALED_DOT_KKT:
        return kkt(head);
      case SLUICE_STAGE_WY_FAST:
        load_rows(p_.A_inverse, chunk_, head, 0, p_.C, at(layout_.left), layout_.C_stride);
        return wy(head);
      case SLUICE_STAGE_SOLVE_WY:
        solve(head);
        if (core::present(p_.A_inverse)) store_triangle(head);
        std::copy_n(at(layout_.right), tile_rows(chunk_.count()) * layout_.C_stride,
                    at(layout_.left));
        return wy(head);
      default:
        return outputs(head);
    }
  }

  void store_sums(int64_t head) const noexcept {
    if (p_.key_gates) return store_key_sums(chunk_, head);
    const core::TokenRange& t = chunk_.tokens;
    for (int64_t i = 0; i < t.size(); ++i) {
      core::store_float(core::address(p_.g_cumsum, t.batch, t.begin + i, head), core::kFloat32,
                        high()[i]);
    }
  }

  /// All heads at once, or all channels of one.
  void cumsum() const noexcept {
    if (!p_.key_gates) return cumsum_along(2, p_.HV, 0);
    for (int64_t head = 0; head < p_.HV; ++head) cumsum_along(3, p_.K, head);
  }

  /// Of `count` gates of a token that lie along `axis`.
  void cumsum_along(int axis, int64_t count, int64_t head) const noexcept {
    const core::TokenRange& t = chunk_.tokens;
    float* const row = high();
    double* const sums = reinterpret_cast<double*>(row + round_up(count, kFloatsPerLine));
    std::fill(sums, sums + count, 0.0);
    const GateRows gates = gate_rows(count, head);
    const bool reverse = p_.direction == SLUICE_DIRECTION_REVERSE;
    for (int64_t i = 0; i < t.size(); ++i) {
      const int64_t token = reverse ? t.end - 1 - i : t.begin + i;
      read_strided(core::address(p_.gate, t.batch, token, head), p_.gate.dtype,
                   p_.gate.stride[axis], count, row);
      if (p_.gate_space != SLUICE_GATE_LOG) to_logarithms(gates, count, row);
      for (int64_t j = 0; j < count; ++j) {
        sums[j] += clamped(row[j]);
        row[j] = static_cast<float>(sums[j]);
      }
      write_strided(row, count, core::address(p_.g_cumsum, t.batch, token, head), core::kFloat32,
                    p_.g_cumsum.stride[axis]);
    }
  }

  /// What makes logarithms of a token's gates.
  struct GateRows {
    GateRule rule;
    float *rates, *biases;
  };
  /// Of all heads, or of the channels of `head`.
  GateRows gate_rows(int64_t count, int64_t head) const noexcept {
    const core::DeltaRuleProblem gates = p_.gates();
    const int64_t width = round_up(count, kFloatsPerLine);
    const GateRows rows{gate_rule(gates, head), high() + 3 * width, high() + 4 * width};
    if (p_.gate_space < SLUICE_GATE_RAW) return rows;
    const bool biased = core::present(p_.dt_bias) && p_.key_gates;
    for (int64_t i = 0; i < count; ++i) {
      const GateRule rule = p_.key_gates ? rows.rule : gate_rule(gates, i);
      rows.rates[i] = rule.decay_rate, rows.biases[i] = rule.dt_bias;
    }
    if (biased)
      read_dense(core::address(p_.dt_bias, head, 0), p_.dt_bias.dtype, count, rows.biases);
    return rows;
  }
  static void to_logarithms(const GateRows& gates, int64_t count, float* row) noexcept {
    const FloatTag d;
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
      const auto rate = hn::LoadU(d, gates.rates + i), bias = hn::LoadU(d, gates.biases + i);
      hn::StoreU(log_gate(gates.rule, hn::LoadU(d, row + i), rate, bias), d, row + i);
    }
  }

  void kkt(int64_t head) const noexcept {
    const int64_t n = chunk_.count(), stride = layout_.C_stride;
    if (p_.key_gates) {
      decayed_key_products(layout_.k, n, false);
      load_beta(chunk_, head);
      for (int64_t i = 0; i < n; ++i) scale_row(beta()[i], stride, at(layout_.left) + i * stride);
    } else {
      load_beta(chunk_, head);
      decayed_products(n, beta(), 0);
    }
    store_rows(at(layout_.left), layout_.C_stride, chunk_, head, 0, p_.C, p_.A);
  }

  /// right = (I + A)^-1. An upper triangle is a lower one with rows and columns in reverse.
  void solve(int64_t head) const noexcept {
    load_triangle(head);
    invert_unit_lower(at(layout_.left), chunk_.count(), layout_.C_stride, at(layout_.right));
  }

  bool upper() const noexcept {
    return p_.stage == SLUICE_STAGE_SOLVE_TRIL && p_.triangle == SLUICE_TRIANGLE_UPPER;
  }

  /// The strict triangle as a lower one, zeros elsewhere.
  void load_triangle(int64_t head) const noexcept {
    const core::TokenRange& t = chunk_.tokens;
    const int64_t n = t.size(), stride = layout_.C_stride;
    float* const A = at(layout_.left);
    std::fill(A, A + tile_rows(n) * stride, 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t token = upper() ? t.end - 1 - i : t.begin + i;
      // The last i entries of a row's n are what lies above the diagonal.
      const int64_t column = upper() ? n - i : 0;
      float* const row = A + i * stride;
      read_dense(core::address(p_.A, t.batch, token, head, column), p_.A.dtype, i, row);
      if (upper()) std::reverse(row, row + i);
    }
  }
  void store_triangle(int64_t head) const noexcept {
    const core::TokenRange& t = chunk_.tokens;
    const int64_t n = t.size();
    for (int64_t i = 0; i < n; ++i) {
      float* const row = at(layout_.right) + i * layout_.C_stride;
      std::fill(row + i + 1, row + p_.C, 0.0f);
      if (upper()) std::reverse(row, row + n);
      const int64_t token = upper() ? t.end - 1 - i : t.begin + i;
      write_dense(row, p_.C, core::address(p_.A_inverse, t.batch, token, head, 0),
                  p_.A_inverse.dtype);
    }
  }

  /// From the inverse in `left`.
  void wy(int64_t head) const noexcept {
    const int64_t n = chunk_.count(), rows = tile_rows(n);
    load_beta(chunk_, head);
    weigh_columns(rows, beta());
    load_rows(p_.values, chunk_, head, 0, p_.V, at(layout_.values), layout_.V_stride);
    float* const out = at(layout_.out);
    product<true>(square(layout_.left), {at(layout_.values), layout_.V_stride}, rows,
                  layout_.V_stride, n, Into::kSet, {out, layout_.V_stride});
    store_rows(out, layout_.V_stride, chunk_, head, 0, p_.V, p_.u);
    const float* const keys = decayed_keys(rows);
    product<true>(square(layout_.left), {keys, layout_.K_stride}, rows, layout_.K_stride, n,
                  Into::kSet, {out, layout_.K_stride});
    store_rows(out, layout_.K_stride, chunk_, head, 0, p_.K, p_.w);
  }

  /// What w's product reads: k with the decays of its channels, or k, whose decays go into `left`.
  const float* decayed_keys(int64_t rows) const noexcept {
    const int64_t n = chunk_.count(), stride = layout_.K_stride;
    if (!p_.key_gates) {
      decay_ends(n);
      weigh_columns(rows, until());
      return at(layout_.k);
    }
    float* const keys = at(layout_.q);
    for (int64_t i = 0; i < n; ++i)
      decay_row(i, kStart, at(layout_.k) + i * stride, keys + i * stride);
    return keys;
  }

  /// left <- left diag(factor).
  void weigh_columns(int64_t rows, const float* factor) const noexcept {
    const FloatTag d;
    for (int64_t i = 0; i < rows; ++i) {
      float* const row = at(layout_.left) + i * layout_.C_stride;
      for (int64_t j = 0; j < layout_.C_stride; j += static_cast<int64_t>(kTileLanes)) {
        hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::LoadU(d, factor + j)), d, row + j);
      }
    }
  }

  void outputs(int64_t head) const noexcept {
    const int64_t n = chunk_.count();
    load_rows(p_.values, chunk_, head, 0, p_.V, at(layout_.values), layout_.V_stride);
    load_panel(core::address(p_.h, chunk_.h_row, chunk_.h_entry, head, 0, 0), p_.h.dtype,
               state_layout(), p_.K, p_.V, {0, p_.V, layout_.V_stride}, at(layout_.state));
    if (p_.key_gates) {
      load_keys(p_.q, chunk_, lane_, layout_.q);
      read_key_out(n);
    } else {
      decay_ends(n);
      read_out(n);
    }
    store_rows(at(layout_.out), layout_.V_stride, chunk_, head, 0, p_.V, p_.o);
  }

  const StageChunk& chunk_;
  int64_t lane_;
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_STAGE_INL_H_
