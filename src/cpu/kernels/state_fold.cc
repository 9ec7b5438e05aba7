// Folds the maps of pieces into the states that enter them.
// Math:     docs/math.md section 9: S <- addend + transition S, or with its transpose.
// Roles:    an item is a chain and a value head. Chains are short and few, so that this is not
//           compiled for every instruction set: a fold of 64 heads and 8 pieces takes milliseconds.
// Memory:   two states in float32 for each worker.
// Numbers:  NUM: sums over rows of the state in ascending order on top of the addend.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/host_access.hpp"
#include "cpu/kernels/operators.hpp"
#include "cpu/parallel_for.hpp"

namespace sluice::cpu {
namespace {

using core::StateFoldProblem;

int workers_for(const StateFoldProblem& p) noexcept {
  return static_cast<int>(std::clamp<int64_t>(p.N * p.HV, 1, std::max(worker_count(), 1)));
}

/// One chain and value head; S and before are [K,V].
class Fold {
 public:
  Fold(const StateFoldProblem& problem, int64_t chain, int64_t head, float* scratch) noexcept
      : p_(problem),
        chain_(chain),
        head_(head),
        S_(scratch),
        before_(scratch + problem.K * problem.V) {}

  void run() noexcept {
    const bool reverse = p_.direction == SLUICE_DIRECTION_REVERSE;
    const int64_t begin = core::slot_at(p_.cu_chains, chain_, 0);
    const int64_t count = core::slot_at(p_.cu_chains, chain_ + 1, 0) - begin;
    load();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t step = begin + (reverse ? count - 1 - i : i);
      const int64_t to = core::slot_at(p_.route_states, step, 0);
      if (to >= 0 && core::present(p_.entering)) store(p_.entering, to);
      const int64_t piece = core::slot_at(p_.route_pieces, step, 0);
      if (piece >= 0) apply(piece);
    }
    if (core::present(p_.final)) store(p_.final, chain_);
  }

 private:
  const void* element(const core::Tensor& states, int64_t n, int64_t i, int64_t j) const noexcept {
    const bool kv = p_.layout == SLUICE_STATE_KV;
    return core::address(states, n, head_, kv ? i : j, kv ? j : i);
  }

  void load() const noexcept {
    for (int64_t at = 0; at < p_.K * p_.V; ++at) {
      const bool given = core::present(p_.initial);
      S_[at] = given ? core::load_float(element(p_.initial, chain_, at / p_.V, at % p_.V),
                                        p_.initial.dtype)
                     : 0.0f;
    }
  }

  void store(const core::Tensor& states, int64_t n) const noexcept {
    for (int64_t at = 0; at < p_.K * p_.V; ++at) {
      core::store_float(const_cast<void*>(element(states, n, at / p_.V, at % p_.V)), states.dtype,
                        S_[at]);
    }
  }

  bool forgotten(int64_t piece) const noexcept {
    return core::present(p_.forgotten) &&
           *static_cast<const uint8_t*>(core::address(p_.forgotten, piece, head_)) != 0;
  }

  void apply(int64_t piece) noexcept {
    const bool reverse = p_.direction == SLUICE_DIRECTION_REVERSE;
    const auto* const M =
        static_cast<const float*>(core::address(p_.transition, piece, head_, 0, 0));
    const auto* const N = static_cast<const float*>(core::address(p_.addend, piece, head_, 0, 0));
    std::swap(S_, before_);
    std::copy_n(N, p_.K * p_.V, S_);
    if (forgotten(piece)) return;
    for (int64_t i = 0; i < p_.K; ++i) {
      float* const row = S_ + i * p_.V;
      for (int64_t l = 0; l < p_.K; ++l) {
        const float m = reverse ? M[l * p_.K + i] : M[i * p_.K + l];
        const float* const from = before_ + l * p_.V;
        for (int64_t j = 0; j < p_.V; ++j) row[j] += m * from[j];
      }
    }
  }

  const StateFoldProblem& p_;
  int64_t chain_, head_;
  float *S_, *before_;
};

}  // namespace

size_t state_fold_workspace(const StateFoldProblem& p) noexcept {
  return static_cast<size_t>(workers_for(p) * 2 * p.K * p.V) * sizeof(float);
}

void state_fold(const StateFoldProblem& p, void* scratch) noexcept {
  if (!core::writes_states(p)) return;
  auto body = [&](int64_t item, int worker) noexcept {
    float* const own = static_cast<float*>(scratch) + worker * 2 * p.K * p.V;
    Fold(p, item / p.HV, item % p.HV, own).run();
  };
  parallel_for(p.N * p.HV, workers_for(p), body);
}

}  // namespace sluice::cpu
