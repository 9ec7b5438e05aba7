// Computes what the gates and write strengths of one chunk and value head amount to (compiled once
// for each instruction set).
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_GATES_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_GATES_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_GATES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_rows.hpp"
#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/gates-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Tokens token..token+n-1 of value head h in batch entry `batch`.
struct GateSource {
  const core::DeltaRuleProblem& problem;
  int64_t batch, token, n, h;

  /// out[t] = the gate or beta of token t.
  void read(const core::Tensor& view, float* out) const noexcept {
    const int64_t r = problem.r;
    const auto* at = static_cast<const std::byte*>(core::address(view, batch, token, h / r, h % r));
    const int64_t step = view.stride[1] * core::element_size(view.dtype);
    for (int64_t t = 0; t < n; ++t) out[t] = core::load_float(at + t * step, view.dtype);
  }
};

/// D_i = exp(G_i), E_i = exp(G_n - G_i).
HWY_INLINE void sum_decays(const float* g, int64_t n, HeadFactors* factors) {
  const FloatTag d;
  double sums[kChunk];
  double sum = 0;
  for (int64_t t = 0; t < n; ++t) sums[t] = sum += static_cast<double>(g[t]);
  float until[kChunk] = {}, since[kChunk] = {};
  for (int64_t t = 0; t < n; ++t) {
    until[t] = static_cast<float>(sums[t]);
    since[t] = static_cast<float>(sum - sums[t]);
  }
  for (int64_t t = 0; t < kChunk; t += static_cast<int64_t>(HWY_LANES(float))) {
    hn::StoreU(exp_nonpositive(hn::LoadU(d, until + t)), d, factors->D + t);
    hn::StoreU(exp_nonpositive(hn::LoadU(d, since + t)), d, factors->E + t);
  }
}

/// The factors of a chunk, and alpha [kChunk], ones past n.
HWY_INLINE void head_factors(const GateSource& source, HeadFactors* factors, float* alpha) {
  const core::DeltaRuleProblem& problem = source.problem;
  const GateRule rule = gate_rule(problem, source.h);
  const int64_t n = source.n;
  float gate[kChunk] = {}, beta[kChunk] = {}, g[kChunk] = {};
  if (rule.gated) source.read(problem.gate, gate);
  if (rule.weighted) source.read(problem.beta, beta);
  decays(rule, gate, n, g, alpha);
  write_strengths(rule, beta, n, factors->beta);
  std::fill(factors->beta + n, factors->beta + kChunk, 0.0f);
  std::fill(alpha + n, alpha + kChunk, 1.0f);
  sum_decays(g, n, factors);
}

/// A_ij = beta_i Gamma_ij kk_ij and P_ij = Gamma_ij qk_ij, all [kChunk][kChunk]; entries above the
/// diagonal mean nothing. Row by row: Gamma_i. = alpha_i Gamma_(i-1).
HWY_INLINE void token_matrices(const float* HWY_RESTRICT alpha, const float* HWY_RESTRICT beta,
                               const float* HWY_RESTRICT kk, const float* HWY_RESTRICT qk,
                               float* HWY_RESTRICT A, float* HWY_RESTRICT P) {
  const FloatTag d;
  constexpr size_t kLanes = HWY_LANES(float), kPieces = static_cast<size_t>(kChunk) / kLanes;
  hn::Vec<FloatTag> gamma[kPieces], token[kPieces];
  SLUICE_UNROLL
  for (size_t c = 0; c < kPieces; ++c) {
    gamma[c] = hn::Zero(d);
    token[c] = hn::Iota(d, static_cast<float>(c * kLanes));
  }
  for (int64_t i = 0; i < kChunk; ++i) {
    const auto decay = hn::Set(d, alpha[i]);
    const auto weight = hn::Set(d, beta[i]);
    const auto here = hn::Set(d, static_cast<float>(i));
    SLUICE_UNROLL
    for (size_t c = 0; c < kPieces; ++c) {
      const int64_t at = i * kChunk + static_cast<int64_t>(c * kLanes);
      gamma[c] = hn::IfThenElse(hn::Eq(token[c], here), hn::Set(d, 1.0f), hn::Mul(gamma[c], decay));
      hn::StoreU(hn::Mul(weight, hn::Mul(gamma[c], hn::LoadU(d, kk + at))), d, A + at);
      hn::StoreU(hn::Mul(gamma[c], hn::LoadU(d, qk + at)), d, P + at);
    }
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_GATES_INL_H_
