// Declares the two delta rule operators on the CPU, and the parts of them that the layer's decode
// step calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_KERNELS_DELTA_RULE_HPP_
#define SLUICE_CPU_KERNELS_DELTA_RULE_HPP_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/backend.hpp"
#include "core/host_access.hpp"
#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::cpu {

/// Most tokens of one HeadSteps.
constexpr int64_t kMaxSteps = 16;

/// The recurrence steps of one sequence and value head:
///   S_t = alpha_t S_{t-1} + k_t delta_t^T,  delta_t = beta_t (v_t - alpha_t S_{t-1}^T k_t),
///   o_t = S_t^T q_t  (delta_t = v_t without the delta rule).
/// With key-wise gates alpha_t is diag(decay_t), and the caller gives decay_t k_t and decay_t q_t too.
/// All rows are float32 with inner stride 1; q is already scaled and, like k, normalised.
/// Arithmetic is float32 and independent of layout, alignment and thread; o is read from the
/// unrounded state. The state may be read and written in place.
struct HeadSteps {
  int64_t tokens = 0;  ///< 0..kMaxSteps; 0 copies the state
  int64_t K = 0, V = 0;
  const float* q = nullptr;  ///< row t at q + t * qk_stride
  const float* k = nullptr;
  int64_t qk_stride = 0;
  const float* v = nullptr;  ///< row t at v + t * v_stride
  int64_t v_stride = 0;
  const float* alpha = nullptr;  ///< [tokens], exp(g); not looked at where decay is given
  /// Of key-wise gates, else null: rows t of K at + t * decay_stride. decayed_k is decay times k.
  const float *decay = nullptr, *decayed_k = nullptr, *decayed_q = nullptr;
  int64_t decay_stride = 0;
  const float* beta = nullptr;  ///< [tokens]
  float* o = nullptr;           ///< row t at o + t * o_stride
  int64_t o_stride = 0;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
  sluice_state_layout layout = SLUICE_STATE_KV;
  const void* initial = nullptr;  ///< this head's K * V elements; null = zeros
  sluice_dtype initial_dtype{};
  /// Where the state after token t goes; null = not written. With tokens = 0 entry 0 is used.
  void* final[kMaxSteps] = {};
  sluice_dtype final_dtype{};
  /// A state of initial_dtype that is stepped after this one, to be fetched meanwhile; or null.
  const void* next = nullptr;
  float* scratch = nullptr;  ///< head_steps_scratch() floats, 64-byte aligned
};

/// Floats of scratch that run_head_steps() needs for at most that many tokens.
int64_t head_steps_scratch(int64_t K, int64_t V, int64_t tokens) noexcept;

/// Runs the steps on the instruction set in use.
void run_head_steps(const HeadSteps& steps) noexcept;

/// Pointers to the states of sequence n and value head h: fills initial, final, their dtypes and
/// layout of `steps` (whose `tokens` is set) by the slot rules of sluice.h. False: the row is
/// padding, to be answered with zeros.
bool plan_head_states(const core::DeltaRuleProblem&, int64_t n, int64_t h,
                      HeadSteps* steps) noexcept;

/// Zeros for o of value head h on a range of tokens.
inline void zero_rows(const core::DeltaRuleProblem& p, const core::TokenRange& range,
                      int64_t h) noexcept {
  const auto bytes = static_cast<size_t>(p.V * core::element_size(p.o.dtype));
  for (int64_t t = range.begin; t < range.end; ++t) {
    std::memset(core::address(p.o, range.batch, t, h, 0), 0, bytes);
  }
}

/// q and k of some tokens as rows of K floats: scaled (q) and, where the problem says so,
/// normalised.
void load_key_rows(const core::DeltaRuleProblem&, const core::TokenRange& tokens, int64_t key_head,
                   float* q, float* k) noexcept;

/// out = factor * x * rsqrt(sum(x^2) + eps), in place allowed; K elements.
void l2_normalise(const float* x, int64_t K, float eps, float factor, float* out) noexcept;

/// How gates and write strengths become numbers for one value head.
struct GateRule {
  bool gated = false;  ///< false: g = 0
  sluice_gate_space gate_space = SLUICE_GATE_LOG;
  float decay_rate = 1;   ///< exp(A_log), of raw gates
  float dt_bias = 0;      ///< of raw scalar gates
  float lower_bound = 0;  ///< of bounded gates
  bool weighted = false;  ///< false: beta = beta_factor
  sluice_beta_space beta_space = SLUICE_BETA_VALUE;
  float beta_factor = 1;
};

/// The rule of value head h.
GateRule gate_rule(const core::DeltaRuleProblem&, int64_t h) noexcept;

/// alpha[t] = exp(g_t) and beta[t] for t < tokens <= kMaxSteps, from the raw contents of gate and
/// beta as float32 (ignored where the rule has none; never read past `tokens`).
void gates_of_steps(const GateRule& rule, const float* gate, const float* beta, int64_t tokens,
                    float* alpha, float* beta_out) noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_KERNELS_DELTA_RULE_HPP_
