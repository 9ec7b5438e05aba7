// Convolves one sequence, its inputs, outputs and state, for a block of channels (compiled once for
// each instruction set).
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CONV_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CONV_STATE_INL_H_
#undef SLUICE_CPU_KERNELS_CONV_STATE_INL_H_
#else
#define SLUICE_CPU_KERNELS_CONV_STATE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/host_access.hpp"
#include "cpu/kernels/convert-inl.h"
#include "cpu/kernels/transpose-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// One sequence of a problem.
struct ConvSequence {
  const core::CausalConvProblem& problem;
  int64_t n;
  core::TokenRange range;
  core::SlotPlan plan;

  ConvSequence(const core::CausalConvProblem& p, int64_t sequence) noexcept
      : problem(p),
        n(sequence),
        range(core::token_range(p.rows, sequence)),
        // WHY no num_accepted here: it chooses columns inside a convolution state, never the slot.
        plan(core::plan_slots(p.state, core::Tensor{}, sequence)) {}

  bool ring() const noexcept { return problem.state.form == SLUICE_CONV_STATE_RING; }
  bool speculative() const noexcept { return core::present(problem.state.num_accepted); }
  int64_t entry(const core::Tensor& indices) const noexcept {
    return core::load_index(core::address(indices, n), indices.dtype);
  }
  /// a = max(num_accepted, 1). BOUND: at most L-W+2, where its last column a+W-3 is column L-1.
  int64_t accepted() const noexcept {
    const int64_t accepted = std::max<int64_t>(entry(problem.state.num_accepted), 1);
    return std::min(accepted, problem.L - problem.W + 2);
  }
  int64_t ring_column(int64_t position) const noexcept {
    const int64_t L = problem.L;
    return ((position % L) + L) % L;
  }
  /// Column of the old state with the input `age` tokens before the first one, age 1 .. W-1.
  int64_t history_column(int64_t age) const noexcept {
    if (ring()) return ring_column(entry(problem.state.ring_position) - age);
    if (speculative()) return accepted() + problem.W - 2 - age;
    return problem.L - age;
  }
};

/// Calls run(group, first channel in the group, offset from `first`, length) for the runs of
/// channels first .. first + count - 1 that lie in one group each.
template <class Run>
void for_channel_runs(const core::CausalConvProblem& problem, int64_t first, int64_t count,
                      Run run) noexcept {
  for (int64_t offset = 0; offset < count;) {
    const int64_t group = (first + offset) / problem.C;
    const int64_t inside = (first + offset) % problem.C;
    const int64_t length = std::min(count - offset, problem.C - inside);
    run(group, inside, offset, length);
    offset += length;
  }
}

/// Inputs of token t, channels first .. first + count - 1.
inline void read_inputs(const ConvSequence& s, int64_t t, int64_t first, int64_t count,
                        float* target) noexcept {
  const core::Tensor& x = s.problem.x;
  for_channel_runs(s.problem, first, count,
                   [&](int64_t group, int64_t inside, int64_t offset, int64_t length) {
                     read_strided(core::address(x, s.range.batch, s.range.begin + t, group, inside),
                                  x.dtype, x.stride[3], length, target + offset);
                   });
}

inline void write_outputs(const ConvSequence& s, int64_t t, int64_t first, int64_t count,
                          const float* source) noexcept {
  const core::Tensor& out = s.problem.out;
  for_channel_runs(
      s.problem, first, count, [&](int64_t group, int64_t inside, int64_t offset, int64_t length) {
        write_strided(source + offset, length,
                      core::address(out, s.range.batch, s.range.begin + t, group, inside),
                      out.dtype, out.stride[3]);
      });
}

/// Column `column` of the state that the sequence starts from.
inline void read_old_column(const ConvSequence& s, int64_t column, int64_t first, int64_t count,
                            float* target) noexcept {
  const core::Tensor& pool = s.problem.state.initial;
  if (s.plan.read < 0) {
    std::fill_n(target, count, 0.0f);
    return;
  }
  read_strided(core::address(pool, s.plan.read, first, column), pool.dtype, pool.stride[1], count,
               target);
}

inline void write_new_column(const ConvSequence& s, int64_t column, int64_t first, int64_t count,
                             const float* source) noexcept {
  const core::Tensor& pool = s.problem.state.final;
  write_strided(source, count, core::address(pool, s.plan.write, first, column), pool.dtype,
                pool.stride[1]);
}

/// The state after the row where it may have many columns. Old columns are read in ascending order
/// just before they are overwritten: right in place too.
inline void write_wide_state(const ConvSequence& s, int64_t first, int64_t count) noexcept {
  HWY_ALIGN float line[kConvChannels];
  const int64_t L = s.problem.L, T = s.range.size();
  const auto carry = [&](int64_t from, int64_t to) {
    read_old_column(s, from, first, count, line);
    write_new_column(s, to, first, count, line);
  };
  const auto insert = [&](int64_t t, int64_t to) {
    read_inputs(s, t, first, count, line);
    write_new_column(s, to, first, count, line);
  };
  if (s.ring()) {
    const core::Tensor &from = s.problem.state.initial, &to = s.problem.state.final;
    const bool in_place = s.plan.read == s.plan.write && from.data == to.data;
    for (int64_t column = 0; column < L && !in_place; ++column) carry(column, column);
    const int64_t position = s.entry(s.problem.state.ring_position);
    for (int64_t t = std::max<int64_t>(T - L, 0); t < T; ++t) {
      insert(t, s.ring_column(position + t));
    }
    return;
  }
  // An empty sequence passes its state through, whatever num_accepted says.
  if (s.speculative() && T > 0) {
    const int64_t kept = s.problem.W - 2, oldest = s.accepted();
    for (int64_t column = 0; column < kept; ++column) carry(oldest + column, column);
    for (int64_t t = 0; t < T; ++t) insert(t, kept + t);
    return;
  }
  for (int64_t column = 0; column < L; ++column) {
    if (column + T < L) {
      carry(column + T, column);
    } else {
      insert(column + T - L, column);
    }
  }
}

/// A state of at most kMaxWidth columns, whole: column w at columns + w * kConvChannels.
struct NarrowState {
  HWY_ALIGN float columns[kMaxWidth * kConvChannels];

  float* column(int64_t w) noexcept { return columns + w * kConvChannels; }

  void read(const ConvSequence& s, int64_t first, int64_t count) noexcept {
    const core::Tensor& pool = s.problem.state.initial;
    if (s.plan.read < 0) {
      for (int64_t w = 0; w < s.problem.L; ++w) std::fill_n(column(w), count, 0.0f);
      return;
    }
    read_matrix(core::address(pool, s.plan.read, first, 0), pool.dtype,
                {count, pool.stride[1], s.problem.L, pool.stride[2]}, columns, kConvChannels);
  }

  /// The state after the row, from the one before it.
  void advance(const ConvSequence& s, int64_t first, int64_t count) noexcept {
    const int64_t L = s.problem.L, T = s.range.size();
    if (s.ring()) {
      const int64_t position = s.entry(s.problem.state.ring_position);
      for (int64_t t = std::max<int64_t>(T - L, 0); t < T; ++t) {
        read_inputs(s, t, first, count, column(s.ring_column(position + t)));
      }
      return;
    }
    for (int64_t w = 0; w < L; ++w) {
      if (w + T < L) {
        std::copy_n(column(w + T), count, column(w));
      } else {
        read_inputs(s, w + T - L, first, count, column(w));
      }
    }
  }

  void write(const ConvSequence& s, int64_t first, int64_t count) const noexcept {
    const core::Tensor& pool = s.problem.state.final;
    write_matrix(columns, kConvChannels, core::address(pool, s.plan.write, first, 0), pool.dtype,
                 {count, pool.stride[1], s.problem.L, pool.stride[2]});
  }
};

/// The W-1 inputs before the first token, oldest first, `stride` floats apart.
inline void read_history(const ConvSequence& s, int64_t first, int64_t count, float* history,
                         int64_t stride) noexcept {
  const int64_t kept = s.problem.W - 1;
  if (s.plan.read < 0) {
    for (int64_t w = 0; w < kept; ++w) std::fill_n(history + w * stride, count, 0.0f);
    return;
  }
  if (s.problem.L <= kMaxWidth) {
    NarrowState state;
    state.read(s, first, count);
    for (int64_t w = 0; w < kept; ++w) {
      std::copy_n(state.column(s.history_column(kept - w)), count, history + w * stride);
    }
    return;
  }
  for (int64_t w = 0; w < kept; ++w) {
    read_old_column(s, s.history_column(kept - w), first, count, history + w * stride);
  }
}

/// The state after the row, for channels first .. first + count - 1 (at most kConvChannels).
inline void write_conv_state(const ConvSequence& s, int64_t first, int64_t count) noexcept {
  if (s.problem.L > kMaxWidth || s.speculative()) return write_wide_state(s, first, count);
  NarrowState state;
  state.read(s, first, count);
  state.advance(s, first, count);
  state.write(s, first, count);
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CONV_STATE_INL_H_
