// Compiles a head's steps for each instruction set, with moves of rows and the l2 norm, and chooses
// one at run time.
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/head_steps.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "cpu/kernels/head_steps-inl.h"
#include "cpu/kernels/load_store.hpp"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

void l2_normalise(const float* x, int64_t K, float eps, float factor, float* out) {
  l2_normalise_row(x, K, eps, factor, out);
}

void step_gates(const GateRule& rule, const float* gate, const float* beta, int64_t tokens,
                float* alpha, float* beta_out) {
  // Whole vectors are worked on: the caller's rows end at `tokens`, these do not.
  float gates[kMaxSteps] = {}, betas[kMaxSteps] = {};
  float g[kMaxSteps], alphas[kMaxSteps], strengths[kMaxSteps];
  if (rule.gated) std::copy_n(gate, tokens, gates);
  if (rule.weighted) std::copy_n(beta, tokens, betas);
  decays(rule, gates, tokens, g, alphas);
  write_strengths(rule, betas, tokens, strengths);
  std::copy_n(alphas, tokens, alpha);
  std::copy_n(strengths, tokens, beta_out);
}

void load_floats(const void* from, sluice_dtype dtype, int64_t count, float* to) {
  read_dense(from, dtype, count, to);
}

void store_floats(const float* from, int64_t count, sluice_dtype dtype, void* to) {
  write_dense(from, count, to, dtype);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {
namespace {

HWY_EXPORT(head_steps);
HWY_EXPORT(l2_normalise);
HWY_EXPORT(step_gates);
HWY_EXPORT(load_floats);
HWY_EXPORT(store_floats);

// The widest panel of any instruction set.
constexpr int64_t kWidestPanel = 32;

}  // namespace

int64_t head_steps_scratch(int64_t K, int64_t V, int64_t tokens) noexcept {
  return K * (tokens > 1 ? std::max(V, kWidestPanel) : kWidestPanel);
}

void run_head_steps(const HeadSteps& steps) noexcept { HWY_DYNAMIC_DISPATCH(head_steps)(steps); }

void l2_normalise(const float* x, int64_t K, float eps, float factor, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(l2_normalise)(x, K, eps, factor, out);
}

void gates_of_steps(const GateRule& rule, const float* gate, const float* beta, int64_t tokens,
                    float* alpha, float* beta_out) noexcept {
  HWY_DYNAMIC_DISPATCH(step_gates)(rule, gate, beta, tokens, alpha, beta_out);
}

void load_row(const void* from, sluice_dtype dtype, int64_t count, float* to) noexcept {
  HWY_DYNAMIC_DISPATCH(load_floats)(from, dtype, count, to);
}

void store_row(const float* from, int64_t count, sluice_dtype dtype, void* to) noexcept {
  HWY_DYNAMIC_DISPATCH(store_floats)(from, count, dtype, to);
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
