// Runs chunk_forward with key-wise gates: one item is a sequence and value head, its state float32
// in the worker's scratch from block to block of kMaxSteps tokens.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/key_steps.hpp"
#include "cpu/kernels/load_store.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

/// Tokens over which the rounding of decays is carried. WHY not longer: a prefill that goes on from
/// a checkpoint has to give the same bits.
constexpr int64_t kCarrySpan = 64;

/// One worker's scratch, in floats; every array starts on a cache line.
struct KeyScratch {
  int64_t size = 0;  // first: the others are taken from it
  int64_t q, k, v, o, alpha, carry, state, panel;

  explicit KeyScratch(const core::DeltaRuleProblem& p) noexcept
      : q(take(kMaxSteps * p.K)),
        k(take(kMaxSteps * p.K)),
        v(take(kMaxSteps * p.V)),
        o(take(kMaxSteps * p.V)),
        alpha(take(kMaxSteps * key_decay_stride(p.K))),
        carry(take(key_decay_stride(p.K))),
        state(take(p.K * p.V)),
        panel(take(head_steps_scratch(p.K, p.V, 1))) {}

 private:
  int64_t take(int64_t floats) noexcept {
    const int64_t first = size;
    size += round_up(floats, kFloatsPerLine);
    return first;
  }
};

/// One sequence and value head.
class KeyRun {
 public:
  KeyRun(const core::DeltaRuleProblem& problem, const KeyScratch& layout, float* scratch, int64_t n,
         int64_t h) noexcept
      : p_(problem),
        layout_(layout),
        scratch_(scratch),
        range_(core::token_range(problem.rows, n)),
        plan_(core::plan_slots(problem.state, core::Tensor{}, n)),
        n_(n),
        h_(h) {}

  void run() noexcept {
    if (plan_.padded) return write_zeros();
    load_state();
    for (int64_t done = 0; done < range_.size();) {
      const int64_t count = std::min(kMaxSteps, range_.size() - done);
      advance(done, count);
      done += count;
      store_checkpoint(done);
    }
    if (plan_.write >= 0) store_state(p_.state.final, plan_.write);
  }

 private:
  float* at(int64_t offset) const noexcept { return scratch_ + offset; }

  void write_zeros() const noexcept {
    const auto bytes = static_cast<size_t>(p_.V * core::element_size(p_.o.dtype));
    for (int64_t t = range_.begin; t < range_.end; ++t) {
      std::memset(core::address(p_.o, range_.batch, t, h_, 0), 0, bytes);
    }
  }

  /// Steps without tokens, which copy a state.
  HeadSteps copy_of_state() const noexcept {
    HeadSteps copy;
    copy.K = p_.K;
    copy.V = p_.V;
    copy.layout = static_cast<sluice_state_layout>(p_.state.layout);
    copy.scratch = at(layout_.panel);
    copy.initial_dtype = copy.final_dtype = core::kFloat32;
    return copy;
  }
  void load_state() const noexcept {
    HeadSteps copy = copy_of_state();
    const core::Tensor& pool = p_.state.initial;
    if (plan_.read >= 0) {
      copy.initial = core::address(pool, plan_.read, h_, 0, 0);
      copy.initial_dtype = pool.dtype;
    }
    copy.final[0] = at(layout_.state);
    run_head_steps(copy);
  }
  void store_state(const core::Tensor& pool, int64_t slot) const noexcept {
    HeadSteps copy = copy_of_state();
    copy.initial = at(layout_.state);
    copy.final[0] = core::address(pool, slot, h_, 0, 0);
    copy.final_dtype = pool.dtype;
    run_head_steps(copy);
  }
  void store_checkpoint(int64_t done) const noexcept {
    if (!core::present(p_.checkpoints) || done % p_.checkpoint_every != 0) return;
    const int64_t column = done / p_.checkpoint_every - 1;
    if (column >= p_.checkpoint_slots.shape[1]) return;
    const int64_t slot = core::slot_at(p_.checkpoint_slots, n_, column);
    if (slot >= p_.state.pad_below) store_state(p_.checkpoints, slot);
  }

  /// `count` tokens after the first `done`.
  void advance(int64_t done, int64_t count) const noexcept {
    const int64_t batch = range_.batch, first = range_.begin + done;
    float alphas[kMaxSteps], betas[kMaxSteps] = {}, gates[kMaxSteps] = {};
    KeySteps key{
        .steps = copy_of_state(), .alpha = at(layout_.alpha), .stride = key_decay_stride(p_.K)};
    HeadSteps& steps = key.steps;
    steps.tokens = count;
    load_key_rows(p_, {batch, first, first + count}, p_.key_head(h_), at(layout_.q), at(layout_.k));
    if (done % kCarrySpan == 0) std::fill_n(at(layout_.carry), key.stride, 0.0f);
    for (int64_t t = 0; t < count; ++t) {
      load_row(core::address(p_.v, batch, first + t, h_, 0), p_.v.dtype, p_.V,
               at(layout_.v) + t * p_.V);
      load_key_decays(p_, batch, first + t, h_, at(layout_.carry),
                      at(layout_.alpha) + t * key.stride);
      if (core::present(p_.beta)) {
        betas[t] = core::load_float(core::address(p_.beta, batch, first + t, h_ / p_.r, h_ % p_.r),
                                    p_.beta.dtype);
      }
    }
    gates_of_steps(gate_rule(p_, h_), gates, betas, count, alphas, betas);
    steps.q = at(layout_.q), steps.k = at(layout_.k), steps.qk_stride = p_.K;
    steps.v = at(layout_.v), steps.o = at(layout_.o), steps.v_stride = steps.o_stride = p_.V;
    steps.beta = betas;
    steps.rule = p_.rule;
    steps.initial = steps.final[count - 1] = at(layout_.state);
    run_key_steps(key);
    for (int64_t t = 0; t < count; ++t) {
      store_row(steps.o + t * p_.V, p_.V, p_.o.dtype, core::address(p_.o, batch, first + t, h_, 0));
    }
  }

  const core::DeltaRuleProblem& p_;
  const KeyScratch& layout_;
  float* scratch_;
  const core::TokenRange range_;
  const core::SlotPlan plan_;
  int64_t n_, h_;
};

int64_t workers_for(const core::DeltaRuleProblem& p) noexcept {
  return std::clamp<int64_t>(worker_count(), 1, std::max<int64_t>(p.rows.N * p.HV, 1));
}

}  // namespace

size_t key_forward_workspace(const core::DeltaRuleProblem& problem) noexcept {
  return static_cast<size_t>(workers_for(problem) * KeyScratch(problem).size) * sizeof(float);
}

void key_forward(const core::DeltaRuleProblem& problem, float* memory) noexcept {
  const KeyScratch layout(problem);
  auto body = [&](int64_t item, int worker) noexcept {
    KeyRun(problem, layout, memory + worker * layout.size, item / problem.HV, item % problem.HV)
        .run();
  };
  parallel_for(problem.rows.N * problem.HV, static_cast<int>(workers_for(problem)), body);
}

}  // namespace sluice::cpu
