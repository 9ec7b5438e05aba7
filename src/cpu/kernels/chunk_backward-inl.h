// Computes the gradients of one sequence and value head.
// Math    docs/math.md (17): forward over the chunks, whose states are kept, then back over them.
// Roles   One item is a sequence with a value head. Value heads that share a key head leave their
//         parts of dq and dk to key_rows(), which sums them in their order.
// Memory  Rows become float32 in scratch once a chunk; 0.7 MB and a state a chunk for K = V = 128.
// Numbers NUM: float32 products; G is a pair of floats and dG a double, so that what slow gates sum
//         and strong gates cancel keeps float32's precision.
// Floor   Forward states 2 K V + 1.5 C (K + V), gradients 7 K V + 4.5 C (K + V) multiply-adds a
//         token.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_BACKWARD_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_BACKWARD_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_backward.hpp"
#include "cpu/kernels/chunk_backward_rows-inl.h"
#include "cpu/kernels/chunk_gates-inl.h"
#include "cpu/kernels/stage_tiles-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(kBackwardColumns == kStageColumns && kBackwardChunk % kStageColumns == 0);

/// All chunks of a sequence and a value head.
class HeadBackward : BackwardHead<BackwardItem> {
 public:
  using BackwardHead::BackwardHead;

  void run() const noexcept {
    const core::TokenRange range = core::token_range(p_.rows, item_.n);
    const int64_t chunks = core::chunk_count(range.size(), kC);
    double dA_log = 0, ddt_bias = 0;
    // Products leave what lies above the diagonal; sums of them times zero must be zero.
    std::fill(at(0), at(l_.states), 0.0f);
    load_state(p_.state.initial, at(l_.S));
    for (int64_t c = 0; c < chunks; ++c) {
      std::memcpy(states(c), at(l_.S), static_cast<size_t>(l_.state_size) * sizeof(float));
      prepare(chunk_of(range, c), states(c));
      if (c + 1 < chunks) advance(chunk_of(range, c).size());
    }
    load_state(b_.d_final, at(l_.D));
    for (int64_t c = chunks - 1; c >= 0; --c) {
      const core::TokenRange chunk = chunk_of(range, c);
      if (c + 1 < chunks) prepare(chunk, states(c));
      gradients(chunk, states(c));
      store_gates(chunk, &dA_log, &ddt_bias);
    }
    store_dinitial();
    if (item_.partials.dA_log != nullptr) item_.partials.dA_log[place()] = dA_log;
    if (item_.partials.ddt_bias != nullptr) item_.partials.ddt_bias[place()] = ddt_bias;
  }

 private:
  static constexpr int64_t kC = kBackwardChunk;

  float* states(int64_t c) const noexcept { return at(l_.states) + c * l_.state_size; }
  /// Numbers by token, a row each.
  enum TokenRow {
    kHigh,
    kLow,
    kUntil,
    kSince,
    kBeta,
    kOnes,
    kGate,
    kRawBeta,
    kG,
    kDG,
    kDBeta,
    kColumns
  };
  float* token(TokenRow row) const noexcept { return at(l_.by_token) + row * kC; }
  LeftMatrix left(int64_t offset, int64_t stride) const noexcept { return {at(offset), stride, 1}; }
  LeftMatrix turned(int64_t offset, int64_t stride) const noexcept {
    return {at(offset), 1, stride};
  }
  static int64_t tile_rows(int64_t n) noexcept {
    return round_up(n, static_cast<int64_t>(kSmallRows));
  }
  static core::TokenRange chunk_of(const core::TokenRange& range, int64_t c) noexcept {
    const int64_t begin = range.begin + c * kC;
    return {range.batch, begin, std::min(begin + kC, range.end)};
  }

  /// Rows of a chunk as float32, zeros past the last column and up to whole tiles.
  void load_rows(const core::Tensor& view, const core::TokenRange& t, int64_t head, int64_t count,
                 float* to, int64_t stride) const noexcept {
    for (int64_t i = 0; i < t.size(); ++i) {
      float* const row = to + i * stride;
      read_dense(core::address(view, t.batch, t.begin + i, head, 0), view.dtype, count, row);
      std::fill(row + count, row + stride, 0.0f);
    }
    std::fill(to + t.size() * stride, to + tile_rows(t.size()) * stride, 0.0f);
  }
  void load_keys(const core::Tensor& view, const core::TokenRange& t, float* to) const noexcept {
    load_rows(view, t, p_.key_head(item_.head), p_.K, to, l_.K_stride);
    if (p_.qk_norm != SLUICE_QK_NORM_L2) return;
    for (int64_t i = 0; i < t.size(); ++i) {
      float* const row = to + i * l_.K_stride;
      l2_normalise_row(row, p_.K, static_cast<float>(p_.l2norm_eps), 1.0f, row);
    }
  }

  /// G as pairs, exp(G), exp(G_n - G), beta; gate and beta as they were given.
  void load_gates(const core::TokenRange& t) const noexcept {
    const GateSource source{p_, t.batch, t.begin, t.size(), item_.head};
    for (const TokenRow row : {kGate, kRawBeta, kHigh, kLow, kBeta}) {
      std::fill(token(row), token(row) + kC, 0.0f);
    }
    std::fill(token(kOnes), token(kOnes) + kC, 1.0f);
    if (rule_.gated) source.read(p_.gate, token(kGate));
    if (rule_.weighted) source.read(p_.beta, token(kRawBeta));
    decays(rule_, token(kGate), t.size(), token(kG), token(kDG));
    write_strengths(rule_, token(kRawBeta), t.size(), token(kBeta));
    std::fill(token(kBeta) + t.size(), token(kBeta) + kC, 0.0f);
    double sum = 0;
    for (int64_t i = 0; i < t.size(); ++i) {
      sum += static_cast<double>(token(kG)[i]);
      token(kHigh)[i] = static_cast<float>(sum);
      token(kLow)[i] = static_cast<float>(sum - static_cast<double>(token(kHigh)[i]));
    }
    decay_ends(sums(), t.size(), kC, token(kUntil), token(kSince));
  }
  DecaySums sums() const noexcept { return {token(kHigh), token(kLow)}; }

  /// What both directions need: k, gates, R and N of a chunk that S enters.
  void prepare(const core::TokenRange& t, const float* S) const noexcept {
    const int64_t n = t.size(), rows = tile_rows(n), Vs = l_.V_stride;
    load_keys(p_.k, t, at(l_.k));
    load_gates(t);
    if (!delta_) return load_rows(p_.v, t, item_.head, p_.V, at(l_.N), Vs);
    transpose(at(l_.k), rows, p_.K, l_.K_stride, at(l_.k_t), kC);
    product<false, true>(left(l_.k, l_.K_stride), {at(l_.k_t), kC}, rows, kC, p_.K, Into::kSet,
                         {at(l_.kk), kC});
    decayed_products(sums(), token(kBeta), rows, 0, kC, at(l_.kk), at(l_.A));
    invert_unit_lower(at(l_.A), n, kC, at(l_.L));
    load_rows(p_.v, t, item_.head, p_.V, at(l_.R), Vs);
    product<false>(left(l_.k, l_.K_stride), {S, Vs}, rows, Vs, p_.K, Into::kSet, {at(l_.KS), Vs});
    for (int64_t i = 0; i < rows; ++i) {
      scale_row(token(kUntil)[i], Vs, at(l_.KS) + i * Vs);
      weigh_row<true>(-1.0f, at(l_.KS) + i * Vs, Vs, at(l_.R) + i * Vs);
      weigh_row<false>(token(kBeta)[i], at(l_.R) + i * Vs, Vs, at(l_.rows) + i * Vs);
    }
    product<true>(left(l_.L, kC), {at(l_.rows), Vs}, rows, Vs, n, Into::kSet, {at(l_.N), Vs});
  }

  /// S <- exp(G_n) S + k^T diag(exp(G_n - G)) N.
  void advance(int64_t n) const noexcept {
    const int64_t Vs = l_.V_stride, rows = tile_rows(p_.K);
    for (int64_t i = 0; i < n; ++i) {
      weigh_row<false>(token(kSince)[i], at(l_.N) + i * Vs, Vs, at(l_.rows) + i * Vs);
    }
    for (int64_t i = 0; i < rows; ++i) scale_row(token(kUntil)[n - 1], Vs, at(l_.S) + i * Vs);
    product<false>(turned(l_.k, l_.K_stride), {at(l_.rows), Vs}, rows, Vs, n, Into::kAdd,
                   {at(l_.S), Vs});
  }

  void gradients(const core::TokenRange& t, const float* S) const noexcept {
    const int64_t n = t.size();
    load_keys(p_.q, t, at(l_.q));
    load_rows(b_.d_o, t, item_.head, p_.V, at(l_.d_o), l_.V_stride);
    std::fill(token(kDG), token(kDG) + kC, 0.0f);
    std::fill(token(kDBeta), token(kDBeta) + kC, 0.0f);
    std::fill(token(kColumns), token(kColumns) + kC, 0.0f);
    token_matrices(n);
    values(n);
    if (delta_) corrections(n);
    if (core::present(b_.dv)) {
      for (int64_t i = 0; i < n; ++i) {
        write_dense(at(d_values()) + i * l_.V_stride, p_.V,
                    core::address(b_.dv, t.batch, t.begin + i, item_.head, 0), b_.dv.dtype);
      }
    }
    gates_of_states(n, S);
    keys(n, S);
    store_keys(t.batch, t.begin, n, l_.K_stride);
    states_before(n);
  }
  /// Where dV is: dR, with simple GLA dN.
  int64_t d_values() const noexcept { return delta_ ? l_.dR : l_.dN; }

  /// P and X.
  void token_matrices(int64_t n) const noexcept {
    const int64_t rows = tile_rows(n);
    if (!delta_) transpose(at(l_.k), rows, p_.K, l_.K_stride, at(l_.k_t), kC);
    transpose(at(l_.N), rows, p_.V, l_.V_stride, at(l_.N_t), kC);
    product<false, true>(left(l_.q, l_.K_stride), {at(l_.k_t), kC}, rows, kC, p_.K, Into::kSet,
                         {at(l_.qk), kC});
    decayed_products(sums(), token(kOnes), rows, 1, kC, at(l_.qk), at(l_.P));
    product<false, true>(left(l_.d_o, l_.V_stride), {at(l_.N_t), kC}, rows, kC, p_.V, Into::kSet,
                         {at(l_.W), kC});
    decayed_products(sums(), token(kOnes), rows, 1, kC, at(l_.W), at(l_.X));
    for (int64_t i = 0; i < rows; ++i) scale_row(scale(), kC, at(l_.X) + i * kC);
    // NUM: the diagonal has no decay. In both sums it would cancel, and its rounding would stay,
    // which is more than strong gates leave of the rest.
    for (int64_t i = 0; i < n; ++i) at(l_.qk)[i * kC + i] = 0.0f;
    add_gate_sums(at(l_.X), at(l_.qk), n);
  }
  float scale() const noexcept { return static_cast<float>(p_.scale); }

  /// dG += row sums - column sums of M = x * y. Neither has anything above the diagonal.
  void add_gate_sums(const float* x, const float* y, int64_t n) const noexcept {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t count = round_up(i + 1, static_cast<int64_t>(kTileLanes));
      token(kDG)[i] += multiply_rows(x + i * kC, y + i * kC, count, token(kColumns));
    }
  }

  /// dN, and what the gates get through what the chunk adds to its state.
  void values(int64_t n) const noexcept {
    const int64_t rows = tile_rows(n), Vs = l_.V_stride;
    product<false>(left(l_.k, l_.K_stride), {at(l_.D), Vs}, rows, Vs, p_.K, Into::kSet,
                   {at(l_.rows), Vs});
    upper_product(turned(l_.P, kC), {at(l_.d_o), Vs}, rows, Vs, n, Into::kSet, {at(l_.dN), Vs});
    for (int64_t i = 0; i < rows; ++i) {
      float* const added = at(l_.rows) + i * Vs;
      scale_row(token(kSince)[i], Vs, added);
      scale_row(scale(), Vs, at(l_.dN) + i * Vs);
      weigh_row<true>(1.0f, added, Vs, at(l_.dN) + i * Vs);
      if (i >= n - 1) continue;  // of the last token it cancels, see token_matrices()
      const float since = dot(at(l_.N) + i * Vs, added, Vs);
      token(kDG)[i] -= since;
      token(kDG)[n - 1] += since;
    }
  }

  /// Y, dR and W = Gamma * dA; dbeta and what the gates get through A and R.
  void corrections(int64_t n) const noexcept {
    const int64_t rows = tile_rows(n), Vs = l_.V_stride;
    upper_product(turned(l_.L, kC), {at(l_.dN), Vs}, rows, Vs, n, Into::kSet, {at(l_.Y), Vs});
    product<false, true>(left(l_.Y, Vs), {at(l_.N_t), kC}, rows, kC, p_.V, Into::kSet,
                         {at(l_.A), kC});
    float* const minus = token(kOnes);
    std::fill(minus, minus + kC, -1.0f);
    decayed_products(sums(), minus, rows, 0, kC, at(l_.A), at(l_.W));
    for (int64_t i = 0; i < rows; ++i) {
      const float beta = token(kBeta)[i];
      float* const dR = at(l_.dR) + i * Vs;
      weigh_row<false>(beta, at(l_.Y) + i * Vs, Vs, dR);
      if (i >= n) continue;
      token(kDBeta)[i] = dot(at(l_.Y) + i * Vs, at(l_.R) + i * Vs, Vs) +
                         dot(at(l_.W) + i * kC, at(l_.kk) + i * kC, i);
      token(kDG)[i] -= dot(dR, at(l_.KS) + i * Vs, Vs);
      scale_row(beta, kC, at(l_.W) + i * kC);
    }
    add_gate_sums(at(l_.W), at(l_.kk), n);
  }

  /// What the gates get through the state that enters; d_o becomes s diag(exp G) d_o.
  void gates_of_states(int64_t n, const float* S) const noexcept {
    const int64_t rows = tile_rows(n), Vs = l_.V_stride;
    product<false>(left(l_.q, l_.K_stride), {S, Vs}, rows, Vs, p_.K, Into::kSet, {at(l_.rows), Vs});
    for (int64_t i = 0; i < rows; ++i) {
      float* const d_o = at(l_.d_o) + i * Vs;
      scale_row(scale() * token(kUntil)[i], Vs, d_o);
      if (i < n) token(kDG)[i] += dot(at(l_.rows) + i * Vs, d_o, Vs);
    }
    token(kDG)[n - 1] += token(kUntil)[n - 1] * dot(S, at(l_.D), p_.K * Vs);
  }

  /// dq and dk of this value head; dR becomes diag(exp G) dR, N becomes diag(exp(G_n - G)) N.
  void keys(int64_t n, const float* S) const noexcept {
    const int64_t rows = tile_rows(n), Vs = l_.V_stride, Ks = l_.K_stride;
    const OutMatrix dq{at(l_.dq), Ks}, dk{at(l_.dk), Ks};
    transpose(S, tile_rows(p_.K), p_.V, Vs, at(l_.state_t), Ks);
    transpose(at(l_.D), tile_rows(p_.K), p_.V, Vs, at(l_.d_state_t), Ks);
    for (int64_t i = 0; i < rows; ++i) {
      scale_row(token(kSince)[i], Vs, at(l_.N) + i * Vs);
      if (delta_) scale_row(token(kUntil)[i], Vs, at(l_.dR) + i * Vs);
    }
    product<false>(left(l_.d_o, Vs), {at(l_.state_t), Ks}, rows, Ks, p_.V, Into::kSet, dq);
    product<true>(left(l_.X, kC), {at(l_.k), Ks}, rows, Ks, n, Into::kAdd, dq);
    product<false>(left(l_.N, Vs), {at(l_.d_state_t), Ks}, rows, Ks, p_.V, Into::kSet, dk);
    upper_product(turned(l_.X, kC), {at(l_.q), Ks}, rows, Ks, n, Into::kAdd, dk);
    if (!delta_) return;
    product<false>(left(l_.dR, Vs), {at(l_.state_t), Ks}, rows, Ks, p_.V, Into::kSubtract, dk);
    product<true>(left(l_.W, kC), {at(l_.k), Ks}, rows, Ks, n, Into::kAdd, dk);
    upper_product(turned(l_.W, kC), {at(l_.k), Ks}, rows, Ks, n, Into::kAdd, dk);
  }

  /// D <- exp(G_n) D + q^T (s diag(exp G) d_o) - k^T (diag(exp G) dR).
  void states_before(int64_t n) const noexcept {
    const int64_t rows = tile_rows(p_.K), Vs = l_.V_stride, Ks = l_.K_stride;
    for (int64_t i = 0; i < rows; ++i) scale_row(token(kUntil)[n - 1], Vs, at(l_.D) + i * Vs);
    product<false>(turned(l_.q, Ks), {at(l_.d_o), Vs}, rows, Vs, n, Into::kAdd, {at(l_.D), Vs});
    if (!delta_) return;
    product<false>(turned(l_.k, Ks), {at(l_.dR), Vs}, rows, Vs, n, Into::kSubtract, {at(l_.D), Vs});
  }

  /// dgate and dbeta from dG and dbeta; the parts of dA_log and ddt_bias.
  void store_gates(const core::TokenRange& t, double* dA_log, double* ddt_bias) const noexcept {
    const int64_t group = item_.head / p_.r, member = item_.head % p_.r;
    double dg = 0;
    for (int64_t i = t.size() - 1; i >= 0; --i) {
      const int64_t row = t.begin + i;
      dg += static_cast<double>(token(kDG)[i]) - static_cast<double>(token(kColumns)[i]);
      if (core::present(b_.dbeta)) {
        core::store_float(core::address(b_.dbeta, t.batch, row, group, member), b_.dbeta.dtype,
                          token(kDBeta)[i] * strength_slope(rule_, token(kRawBeta)[i]));
      }
      if (!rule_.gated) continue;
      const GateSlopes slopes = gate_slopes(rule_, token(kGate)[i], token(kG)[i]);
      const double by_gate = dg * static_cast<double>(slopes.gate);
      if (core::present(b_.dgate)) {
        core::store_float(core::address(b_.dgate, t.batch, row, group, member), b_.dgate.dtype,
                          static_cast<float>(by_gate));
      }
      *ddt_bias += by_gate;
      if (token(kG)[i] != kSmallestGate) *dA_log += dg * static_cast<double>(slopes.A_log);
    }
  }
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_BACKWARD_INL_H_
