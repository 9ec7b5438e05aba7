// Computes the gradients of one sequence and value head with key-wise gates, token by token.
// Math    docs/math.md section 8 with diag(alpha) in place of alpha: forward over the tokens, then
//         back over them; dg of a channel is the product of its rows of the two states.
// Roles   One item is a sequence with a value head, as in chunk_backward-inl.h.
// Memory  States are kept every sqrt(T) tokens and, of one such segment, before every token.
// Numbers NUM: float32; no difference of sums is taken, so that neither slow gates nor resets cost
//         digits.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_KEY_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_KEY_BACKWARD_INL_H_
#undef SLUICE_CPU_KERNELS_KEY_BACKWARD_INL_H_
#else
#define SLUICE_CPU_KERNELS_KEY_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_backward.hpp"
#include "cpu/kernels/chunk_backward_rows-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// What a row of the two states gives a token: products of rows with vectors, each over V.
struct RowProducts {
  float before_d_o = 0, before_x = 0;  ///< of S_{t-1}
  float D_error = 0, D_before = 0;  ///< of D; the latter after the delta rule's part is taken off
};

/// Rows of S_{t-1} and D, and the token's vectors, all of `count` numbers, a multiple of the lanes.
/// D -= factor x on the way.
HWY_INLINE RowProducts multiply_state_rows(const float* before, float* D, const float* d_o,
                                           const float* x, const float* error, float factor,
                                           int64_t count) {
  const FloatTag d;
  auto a = hn::Zero(d), b = a, c = a, e = a;
  const auto by = hn::Set(d, factor);
  for (int64_t j = 0; j < count; j += static_cast<int64_t>(kTileLanes)) {
    const auto S = hn::LoadU(d, before + j), G = hn::LoadU(d, D + j), X = hn::LoadU(d, x + j);
    const auto left = hn::NegMulAdd(by, X, G);
    hn::StoreU(left, d, D + j);
    a = hn::MulAdd(S, hn::LoadU(d, d_o + j), a);
    b = hn::MulAdd(S, X, b);
    c = hn::MulAdd(G, hn::LoadU(d, error + j), c);
    e = hn::MulAdd(S, left, e);
  }
  const auto sum = [&](FloatVec v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(d, v)); };
  return {sum(a), sum(b), sum(c), sum(e)};
}

/// All tokens of a sequence and a value head.
class KeyBackward : BackwardHead<KeyBackwardItem> {
 public:
  using BackwardHead::BackwardHead;

  void run() noexcept {
    range_ = core::token_range(p_.rows, item_.n);
    const int64_t T = range_.size(), segments = core::chunk_count(T, l_.segment);
    std::fill(at(0), at(l_.states), 0.0f);  // sums over padding are zeros
    load_biases();
    load_state(p_.state.initial, at(l_.S));
    for (int64_t i = 0; i < segments; ++i) {
      copy_state(at(l_.S), start(i));
      forward(i * l_.segment, std::min(T, (i + 1) * l_.segment));
    }
    load_state(b_.d_final, at(l_.D));
    for (int64_t i = segments - 1; i >= 0; --i) {
      const int64_t begin = i * l_.segment, end = std::min(T, begin + l_.segment);
      copy_state(start(i), at(l_.S));
      forward(begin, end);
      for (int64_t t = end - 1; t >= begin; --t) backward(t, state(t - begin));
    }
    store_dinitial();
    if (item_.partials.dA_log != nullptr) item_.partials.dA_log[place()] = dA_log_;
    if (item_.partials.ddt_bias != nullptr) {
      std::copy_n(bias_gradients(), p_.K, item_.partials.ddt_bias + place() * p_.K);
    }
  }

 private:
  float* start(int64_t i) const noexcept { return at(l_.starts) + i * l_.state_size; }
  float* state(int64_t i) const noexcept { return at(l_.states) + i * l_.state_size; }
  double* bias_gradients() const noexcept { return reinterpret_cast<double*>(at(l_.ddt_bias)); }
  void copy_state(const float* from, float* to) const noexcept {
    std::memcpy(to, from, static_cast<size_t>(l_.state_size) * sizeof(float));
  }
  void load_biases() const noexcept {
    std::fill_n(bias_gradients(), p_.K, 0.0);
    if (!core::present(p_.dt_bias)) return;
    read_dense(core::address(p_.dt_bias, item_.head, 0), p_.dt_bias.dtype, p_.K, at(l_.bias));
  }

  /// q (scaled), k, v, gates and beta of token t.
  void load_token(int64_t t) noexcept {
    const int64_t row = range_.begin + t;
    load_key_rows(p_, {range_.batch, row, row + 1}, p_.key_head(item_.head), at(l_.q), at(l_.k));
    read_dense(core::address(p_.v, range_.batch, row, item_.head, 0), p_.v.dtype, p_.V, at(l_.v));
    read_dense(core::address(p_.key_gate, range_.batch, row, item_.head, 0), p_.key_gate.dtype,
               p_.K, at(l_.gate));
    const FloatTag d;
    const auto rate = hn::Set(d, rule_.decay_rate);
    for (int64_t i = 0; i < p_.K; i += static_cast<int64_t>(kTileLanes)) {
      const auto gate = hn::LoadU(d, at(l_.gate) + i);
      const auto g = log_gate(rule_, gate, rate, hn::LoadU(d, at(l_.bias) + i));
      const bool given = rule_.gate_space == SLUICE_GATE_LINEAR;
      hn::StoreU(g, d, at(l_.g) + i);
      hn::StoreU(given ? gate : exp_nonpositive(g), d, at(l_.alpha) + i);
    }
    given_beta_ =
        core::present(p_.beta) ? core::load_float(address_of(p_.beta, row), p_.beta.dtype) : 0.0f;
    float beta[kMaxSteps], given[kMaxSteps] = {given_beta_};
    write_strengths(rule_, given, 1, beta);
    beta_ = delta_ ? beta[0] : 1.0f;
  }
  void* address_of(const core::Tensor& view, int64_t row) const noexcept {
    return core::address(view, range_.batch, row, item_.head / p_.r, item_.head % p_.r);
  }

  /// error = v - (diag(alpha) S)^T k; without the delta rule v.
  void predict(const float* S) const noexcept {
    std::copy_n(at(l_.v), l_.V_stride, at(l_.error));
    for (int64_t i = 0; i < p_.K && delta_; ++i) {
      weigh_row<true>(-at(l_.alpha)[i] * at(l_.k)[i], S + i * l_.V_stride, l_.V_stride,
                      at(l_.error));
    }
  }

  /// S over tokens begin .. end - 1, the state before each of them kept.
  void forward(int64_t begin, int64_t end) noexcept {
    float* const S = at(l_.S);
    for (int64_t t = begin; t < end; ++t) {
      copy_state(S, state(t - begin));
      load_token(t);
      predict(S);
      for (int64_t i = 0; i < p_.K; ++i) {
        float* const row = S + i * l_.V_stride;
        scale_row(at(l_.alpha)[i], l_.V_stride, row);
        weigh_row<true>(beta_ * at(l_.k)[i], at(l_.error), l_.V_stride, row);
      }
    }
  }

  /// From the gradient D of S_t to that of `before` = S_{t-1}.
  void backward(int64_t t, const float* before) noexcept {
    load_token(t);
    predict(before);
    const int64_t row = range_.begin + t, width = l_.V_stride;
    float *const D = at(l_.D), *const x = at(l_.x), *const d_o = at(l_.d_o);
    read_dense(core::address(b_.d_o, range_.batch, row, item_.head, 0), b_.d_o.dtype, p_.V, d_o);
    std::fill_n(x, width, 0.0f);
    for (int64_t i = 0; i < p_.K; ++i) {
      weigh_row<true>(at(l_.q)[i], d_o, width, D + i * width);
      weigh_row<true>(at(l_.k)[i], D + i * width, width, x);
    }
    const float error_d_o = dot(at(l_.error), d_o, width);
    const float scale = static_cast<float>(p_.scale), taken = delta_ ? beta_ : 0.0f;
    for (int64_t i = 0; i < p_.K; ++i) {
      const float alpha = at(l_.alpha)[i], k = at(l_.k)[i];
      const RowProducts r = multiply_state_rows(before + i * width, D + i * width, d_o, x,
                                                at(l_.error), taken * k, width);
      at(l_.dq)[i] = scale * (alpha * r.before_d_o + beta_ * k * error_d_o);
      at(l_.dk)[i] = beta_ * (delta_ ? r.D_error - alpha * r.before_x : r.D_error);
      at(l_.dg)[i] = alpha * r.D_before;
      scale_row(alpha, width, D + i * width);
    }
    store_keys(range_.batch, row, 1, l_.K_stride);
    store_values(row);
    store_gates(row);
  }

  /// dv and dbeta.
  void store_values(int64_t row) const noexcept {
    const float *const x = at(l_.x), *const error = at(l_.error);
    if (core::present(b_.dbeta)) {
      core::store_float(address_of(b_.dbeta, row), b_.dbeta.dtype,
                        dot(x, error, l_.V_stride) * strength_slope(rule_, given_beta_));
    }
    if (!core::present(b_.dv)) return;
    weigh_row<false>(beta_, x, l_.V_stride, at(l_.d_o));
    write_dense(at(l_.d_o), p_.V, core::address(b_.dv, range_.batch, row, item_.head, 0),
                b_.dv.dtype);
  }

  /// dgate from dg, and what A_log and dt_bias get of it.
  void store_gates(int64_t row) noexcept {
    float* const dg = at(l_.dg);
    GateRule rule = rule_;
    for (int64_t i = 0; i < p_.K; ++i) {
      rule.dt_bias = at(l_.bias)[i];
      const GateSlopes slopes = gate_slopes(rule, at(l_.gate)[i], at(l_.g)[i]);
      if (at(l_.g)[i] != kSmallestGate) {
        dA_log_ += static_cast<double>(dg[i]) * static_cast<double>(slopes.A_log);
      }
      dg[i] *= slopes.gate;
      bias_gradients()[i] += static_cast<double>(dg[i]);
    }
    if (!core::present(b_.dgate)) return;
    write_dense(dg, p_.K, core::address(b_.dgate, range_.batch, row, item_.head, 0),
                b_.dgate.dtype);
  }

  core::TokenRange range_{};
  float beta_ = 1, given_beta_ = 0;
  double dA_log_ = 0;
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_KEY_BACKWARD_INL_H_
