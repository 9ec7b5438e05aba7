// Computes a layer's decode step, key head by key head.
// Math:     conv + SiLU on [q|k|v] -> l2 norm, gates -> delta steps -> gated RMSNorm.
// Roles:    one work item = (sequence, key head): its q and k channels and the v channels of its r
//           value heads, so that every convolution channel, and with it every column of convolution
//           state, belongs to exactly one item.
// Pipeline: q, k -> per value head: v -> steps on the state, in place -> norm -> out.
// Memory:   DecodeScratch below, one per worker.
// Floor:    one read and one write of the delta states; all else stays in L1.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/operators.hpp"

#include "cpu/kernels/delta_rule.hpp"
#include "cpu/kernels/key_steps.hpp"
#include "cpu/kernels/size_limits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/layer_decode.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "cpu/isa.hpp"
#include "cpu/kernels/conv_rows-inl.h"
#include "cpu/kernels/conv_step-inl.h"
#include "cpu/kernels/norm_rows-inl.h"
#include "cpu/parallel_for.hpp"

#ifndef SLUICE_CPU_KERNELS_LAYER_DECODE_SCRATCH_
#define SLUICE_CPU_KERNELS_LAYER_DECODE_SCRATCH_
namespace sluice::cpu {

/// One worker's rows, all float32.
struct DecodeScratch {
  int64_t qk_stride, v_stride;  ///< floats between rows: K and V in whole cache lines
  /// Offsets in floats: [T,K] [T,K] [T,V] [T,V] [V] [V] [..], of key-wise gates [T,K].
  int64_t q, k, v, o, z, w, steps, decays;
  int64_t size;  ///< floats for one worker

  explicit DecodeScratch(const core::DeltaRuleProblem& delta) noexcept {
    constexpr int64_t kLine = 64;  // floats: a whole number of vectors of every length
    const auto lines = [](int64_t count) { return (count + kLine - 1) / kLine * kLine; };
    qk_stride = lines(delta.K);
    v_stride = lines(delta.V);
    q = 0;
    k = q + kMaxSteps * qk_stride;
    v = k + kMaxSteps * qk_stride;
    o = v + kMaxSteps * v_stride;
    z = o + kMaxSteps * v_stride;
    w = z + v_stride;
    steps = w + v_stride;
    decays = steps + lines(head_steps_scratch(delta.K, delta.V, delta.rows.max_tokens));
    const bool key_wise = core::present(delta.key_gate);
    size = decays + (key_wise ? lines(key_decay_floats(delta.K, kMaxSteps)) : 0);
  }
};

}  // namespace sluice::cpu
#endif  // SLUICE_CPU_KERNELS_LAYER_DECODE_SCRATCH_

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

/// Channels first .. first + count - 1 of sequence n, convolved and rounded to x's dtype as the
/// operator's output would be: row t at target + t * stride. Then their new state.
void convolve_row(const core::CausalConvProblem& problem, int64_t n, int64_t first, int64_t count,
                  float* target, int64_t stride) noexcept {
  const ConvSequence s(problem, n);
  const int64_t T = s.range.size();
  for (int64_t done = 0; done < count; done += kConvChannels) {
    const int64_t block = std::min(kConvChannels, count - done);
    if (s.plan.padded) {
      for (int64_t t = 0; t < T; ++t) std::fill_n(target + t * stride + done, block, 0.0f);
      continue;
    }
    if (is_plain_step(s, block)) {
      convolve_step(s, first + done, block, target + done);
      round_through(target + done, block, problem.x.dtype);
      continue;
    }
    ConvTile tile;
    tile.start(s, first + done, block);
    tile.fill(0, T);
    tile.convolve(T);
    for (int64_t t = 0; t < T; ++t) {
      std::copy_n(tile.row(t), block, target + t * stride + done);
      round_through(target + t * stride + done, block, problem.x.dtype);
    }
    if (s.plan.write >= 0) write_conv_state(s, first + done, block);
  }
}

/// One work item.
class DecodeItem {
 public:
  DecodeItem(const core::LayerProblem& problem, const DecodeScratch& plan, float* scratch,
             int64_t n) noexcept
      : problem_(problem),
        delta_(problem.delta),
        plan_(plan),
        scratch_(scratch),
        n_(n),
        range_(core::token_range(problem.delta.rows, n)) {}

  void run(int64_t key_head) noexcept {
    const int64_t K = delta_.K, T = range_.size(), stride = plan_.qk_stride;
    const auto eps = static_cast<float>(delta_.l2norm_eps);
    float *q = scratch_ + plan_.q, *k = scratch_ + plan_.k;
    convolve_row(problem_.conv[0], n_, key_head * K, K, q, stride);
    convolve_row(problem_.conv[1], n_, key_head * K, K, k, stride);
    for (int64_t t = 0; t < T; ++t) {
      float *q_row = q + t * stride, *k_row = k + t * stride;
      l2_normalise(q_row, K, eps, static_cast<float>(delta_.scale), q_row);
      l2_normalise(k_row, K, eps, 1.0f, k_row);
    }
    for (int64_t i = 0; i < delta_.r; ++i) {
      const bool last = i + 1 == delta_.r;
      const bool known = !last || (worker_count() == 1 && key_head + 1 < delta_.H);
      const int64_t next = last ? value_head_of(key_head + 1, 0) : value_head_of(key_head, i + 1);
      value_head(value_head_of(key_head, i), known ? next : -1);
    }
  }

 private:
  int64_t value_head_of(int64_t key_head, int64_t i) const noexcept {
    const bool block = delta_.head_map == SLUICE_HEAD_MAP_BLOCK;
    return block ? key_head * delta_.r + i : key_head + i * delta_.H;
  }

  /// Where the state of value head h lies that this sequence starts from; null = none.
  const void* state_of(int64_t h) const noexcept {
    HeadSteps steps;
    return h >= 0 && plan_head_states(delta_, n_, h, &steps) ? steps.initial : nullptr;
  }

  /// next: the head that this worker is likely to do after h, or -1.
  void value_head(int64_t h, int64_t next) noexcept {
    float *v = scratch_ + plan_.v, *o = scratch_ + plan_.o;
    convolve_row(problem_.conv[2], n_, h * delta_.V, delta_.V, v, plan_.v_stride);
    float alpha[kMaxSteps], beta[kMaxSteps];
    HeadSteps steps;
    steps.tokens = range_.size();
    const bool padded = !plan_head_states(delta_, n_, h, &steps);
    if (!padded) {
      read_gates(h, alpha, beta);
      steps.K = delta_.K;
      steps.V = delta_.V;
      steps.q = scratch_ + plan_.q;
      steps.k = scratch_ + plan_.k;
      steps.qk_stride = plan_.qk_stride;
      steps.v = v;
      steps.v_stride = plan_.v_stride;
      steps.alpha = alpha;
      steps.beta = beta;
      steps.o = o;
      steps.o_stride = plan_.v_stride;
      steps.rule = delta_.rule;
      steps.next = state_of(next);
      steps.scratch = scratch_ + plan_.steps;
      if (core::present(delta_.key_gate)) {
        set_key_decays(delta_, range_, h, scratch_ + plan_.decays, &steps);
      }
      run_head_steps(steps);
    }
    finish(h, padded);
  }

  void read_gates(int64_t h, float* alpha, float* beta) const noexcept {
    float raw_gate[kMaxSteps], raw_beta[kMaxSteps];
    for (int64_t t = 0; t < range_.size(); ++t) {
      const int64_t token = range_.begin + t, outer = h / delta_.r, inner = h % delta_.r;
      const core::Tensor &a = delta_.gate, &b = delta_.beta;
      if (core::present(a)) {
        const void* at = core::address(a, range_.batch, token, outer, inner);
        raw_gate[t] = core::load_float(at, a.dtype);
      }
      raw_beta[t] = core::load_float(core::address(b, range_.batch, token, outer, inner), b.dtype);
    }
    gates_of_steps(gate_rule(delta_, h), raw_gate, raw_beta, range_.size(), alpha, beta);
  }

  /// Core output and gated norm of value head h; zeros for padded rows, whatever z holds.
  void finish(int64_t h, bool padded) noexcept {
    const core::GatedNormProblem& norm = problem_.norm;
    const NormRule rule = layer_norm_rule(norm);
    const int64_t V = delta_.V, whole = whole_vectors(V), outer = h / delta_.r,
                  inner = h % delta_.r;
    float *z = scratch_ + plan_.z, *weight = scratch_ + plan_.w;
    std::fill_n(z + V, whole - V, 0.0f);
    std::fill_n(weight + V, whole - V, 0.0f);
    read_strided(norm.weight.data, norm.weight.dtype, norm.weight.stride[0], V, weight);
    for (int64_t t = 0; t < range_.size(); ++t) {
      const int64_t token = range_.begin + t;
      float* o = scratch_ + plan_.o + t * plan_.v_stride;
      if (padded) std::fill_n(o, V, 0.0f);
      if (core::present(delta_.o)) {
        write_dense(o, V, core::address(delta_.o, range_.batch, token, h, 0), delta_.o.dtype);
      }
      if (!padded) {
        std::fill_n(o + V, whole - V, 0.0f);
        read_dense(core::address(norm.z, range_.batch, token, outer, inner, 0), norm.z.dtype, V, z);
        norm_row(rule, z, weight, o);
      }
      write_dense(o, V, core::address(norm.out, range_.batch, token, outer, inner, 0),
                  norm.out.dtype);
    }
  }

  const core::LayerProblem& problem_;
  const core::DeltaRuleProblem& delta_;
  const DecodeScratch& plan_;
  float* scratch_;
  int64_t n_;
  core::TokenRange range_;
};

}  // namespace

void decode_layer(const core::LayerProblem& problem, float* workspace) {
  const DecodeScratch plan(problem.delta);
  const int64_t H = problem.delta.H;
  auto item = [&](int64_t index, int worker) {
    DecodeItem(problem, plan, workspace + worker * plan.size, index / H).run(index % H);
  };
  parallel_for(problem.delta.rows.N * H, worker_count(), item);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(decode_layer);

size_t layer_decode_workspace(const core::LayerProblem& problem) noexcept {
  if (core::present(problem.delta.ring.k)) return layer_prefill_workspace(problem);
  const DecodeScratch plan(problem.delta);
  return static_cast<size_t>(plan.size) * sizeof(float) * static_cast<size_t>(worker_count());
}

void layer_decode(const core::LayerProblem& problem, void* scratch) noexcept {
  if (core::present(problem.delta.ring.k)) return layer_prefill(problem, scratch);
  HWY_DYNAMIC_DISPATCH(decode_layer)(problem, static_cast<float*>(scratch));
}

}  // namespace sluice::cpu
#endif  // HWY_ONCE
