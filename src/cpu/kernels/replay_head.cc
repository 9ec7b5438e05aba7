// Computes one value head of decode by replay.
// Math     replay_head.hpp.
// Roles    one call = one value head; rows of the state are read once for the products of all
//          tokens, and once more where the call folds.
// Memory   a row of the state at a time in float32; everything else of the head stays in L1.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels/replay_head.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/replay_head.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, so that they are compiled per target.
#include "cpu/kernels/gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {
namespace {

/// y += a x.
void add_scaled(float a, const float* HWY_RESTRICT x, int64_t count, float* HWY_RESTRICT y) {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  const auto factor = hn::Set(d, a);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] += a * x[i];
}

/// Row i of a state as it lies in memory.
void* state_row(const void* state, sluice_dtype dtype, int64_t columns, int64_t i) {
  const int64_t bytes = i * columns * core::element_size(dtype);
  return const_cast<std::byte*>(static_cast<const std::byte*>(state) + bytes);
}

/// with_k = S0^T k, with_q = S0^T q of all tokens.
void multiply_state(const ReplayHead& head) {
  const int64_t K = head.K, V = head.V;
  std::fill_n(head.with_k, head.tokens * V, 0.0f);
  std::fill_n(head.with_q, head.tokens * V, 0.0f);
  if (head.state == nullptr) return;
  const bool kv = head.layout == SLUICE_STATE_KV;
  for (int64_t i = 0; i < (kv ? K : V); ++i) {
    read_dense(state_row(head.state, head.state_dtype, kv ? V : K, i), head.state_dtype, kv ? V : K,
               head.row);
    for (int64_t t = 0; t < head.tokens; ++t) {
      if (kv) {
        add_scaled(head.k[t * K + i], head.row, V, head.with_k + t * V);
        add_scaled(head.q[t * K + i], head.row, V, head.with_q + t * V);
      } else {
        head.with_k[t * V + i] = dot(head.row, head.k + t * K, K);
        head.with_q[t * V + i] = dot(head.row, head.q + t * K, K);
      }
    }
  }
}

/// The products of the decays behind each entry, and behind none: of S0.
struct Weights {
  float of_state = 1.0f, of_entry[kMaxReplayEntries];

  void append(int64_t entries, float decay) {
    of_state *= decay;
    for (int64_t e = 0; e < entries; ++e) of_entry[e] *= decay;
    of_entry[entries] = 1.0f;
  }
};

/// fold = S before the tokens.
void fold_entries(const ReplayHead& head, const Weights& weights) {
  const bool kv = head.layout == SLUICE_STATE_KV;
  const int64_t rows = kv ? head.K : head.V, columns = kv ? head.V : head.K;
  const float *across = kv ? head.keys : head.deltas, *along = kv ? head.deltas : head.keys;
  for (int64_t i = 0; i < rows; ++i) {
    std::fill_n(head.row, columns, 0.0f);
    if (head.state != nullptr) {
      read_dense(state_row(head.state, head.state_dtype, columns, i), head.state_dtype, columns,
                 head.row);
      for (int64_t j = 0; j < columns; ++j) head.row[j] *= weights.of_state;
    }
    for (int64_t e = 0; e < head.live; ++e) {
      add_scaled(weights.of_entry[e] * across[e * rows + i], along + e * columns, columns,
                 head.row);
    }
    write_dense(head.row, columns, state_row(head.fold, head.state_dtype, columns, i),
                head.state_dtype);
  }
}

/// o of token t, and its entry.
void step_token(const ReplayHead& head, const Weights& weights, int64_t t) {
  const int64_t K = head.K, V = head.V, entries = head.live + t;
  const float *q = head.q + t * K, *k = head.k + t * K, *v = head.v + t * V;
  float *u = head.with_k + t * V, *w = head.with_q + t * V, *o = head.o + t * V;
  for (int64_t j = 0; j < V; ++j) u[j] *= weights.of_state;
  for (int64_t j = 0; j < V; ++j) w[j] *= weights.of_state;
  for (int64_t e = 0; e < entries; ++e) {
    const float *key = head.keys + e * K, *delta = head.deltas + e * V;
    add_scaled(weights.of_entry[e] * dot(key, k, K), delta, V, u);
    add_scaled(weights.of_entry[e] * dot(key, q, K), delta, V, w);
  }
  const float alpha = head.alpha[t], beta = head.beta[t], kq = dot(k, q, K);
  float* const delta = head.deltas + entries * V;
  const bool corrects = head.rule == SLUICE_RULE_GATED_DELTA;
  for (int64_t j = 0; j < V; ++j) {
    delta[j] = corrects ? beta * (v[j] - alpha * u[j]) : v[j];
    o[j] = alpha * w[j] + kq * delta[j];
  }
  round_through(delta, V, head.delta_dtype);
  std::copy_n(k, K, head.keys + entries * K);
  round_through(head.keys + entries * K, K, head.key_dtype);
  head.decays[entries] = alpha;
}

}  // namespace

void replay_head(const ReplayHead& head) {
  multiply_state(head);
  Weights weights;
  for (int64_t e = 0; e < head.live; ++e) weights.append(e, head.decays[e]);
  if (head.fold != nullptr) fold_entries(head, weights);
  for (int64_t t = 0; t < head.tokens; ++t) {
    step_token(head, weights, t);
    weights.append(head.live + t, head.alpha[t]);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::cpu {

HWY_EXPORT(replay_head);

void run_replay_head(const ReplayHead& head) noexcept { HWY_DYNAMIC_DISPATCH(replay_head)(head); }

}  // namespace sluice::cpu
#endif  // HWY_ONCE
