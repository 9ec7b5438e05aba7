// Convolves one token of some channels, as decoding has it nearly always: a window of four, a dense
// state [channel][3 or 4] that shifts by one column. Same sums in the same order as
// conv_rows-inl.h.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CONV_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CONV_STEP_INL_H_
#undef SLUICE_CPU_KERNELS_CONV_STEP_INL_H_
#else
#define SLUICE_CPU_KERNELS_CONV_STEP_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/conv_state-inl.h"
#include "cpu/kernels/unroll.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
constexpr int64_t kStepWidth = 4;
constexpr int64_t kStepLanes = static_cast<int64_t>(HWY_LANES(float));

/// Where the newest input goes in kColumns vectors of states: for each place, the lane it comes
/// from and whether it does.
template <int64_t kColumns>
struct NewestPlaces {
  static constexpr size_t kPlaces = static_cast<size_t>(kColumns * kStepLanes);
  std::array<int32_t, kPlaces> lane{}, newest{};

  constexpr NewestPlaces() {
    for (size_t at = 0; at < kPlaces; ++at) {
      const bool here = at % kColumns == kColumns - 1;
      newest[at] = here ? -1 : 0;
      lane[at] = here ? static_cast<int32_t>(at / kColumns) : 0;
    }
  }
};

/// The last three columns of kStepLanes states.
template <int64_t kColumns>
HWY_INLINE void load_window(const float* states, hn::Vec<FloatTag> (&window)[3]) {
  const FloatTag d;
  if constexpr (kColumns == 3) {
    hn::LoadInterleaved3(d, states, window[0], window[1], window[2]);
  } else {
    hn::Vec<FloatTag> oldest;
    hn::LoadInterleaved4(d, states, oldest, window[0], window[1], window[2]);
  }
}

/// Outputs of `count` channels, a multiple of the lanes, from dense rows: states [count][kColumns]
/// (readable one float further), weights [count][4], bias and x [count]. new_states
/// [count][kColumns] may be `states`.
template <int64_t kColumns>
HWY_INLINE void step_channels(bool with_silu, int64_t count, const float* weights,
                              const float* bias, const float* x, const float* states,
                              float* new_states, float* out) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  alignas(64) static constexpr NewestPlaces<kColumns> kPlaces;
  for (int64_t c = 0; c < count; c += kStepLanes) {
    hn::Vec<FloatTag> window[3], w[kStepWidth];
    load_window<kColumns>(states + c * kColumns, window);
    hn::LoadInterleaved4(d, weights + c * kStepWidth, w[0], w[1], w[2], w[3]);
    const auto newest = hn::LoadU(d, x + c);
    auto sum = hn::MulAdd(w[0], window[0], hn::LoadU(d, bias + c));
    sum = hn::MulAdd(w[1], window[1], sum);
    sum = hn::MulAdd(w[2], window[2], sum);
    sum = hn::MulAdd(w[3], newest, sum);
    if (with_silu) sum = silu(d, sum);
    hn::StoreU(sum, d, out + c);
    SLUICE_UNROLL
    for (int64_t j = 0; j < kColumns; ++j) {
      const int64_t at = c * kColumns + j * kStepLanes;
      const auto lanes = hn::SetTableIndices(d, kPlaces.lane.data() + j * kStepLanes);
      const auto here =
          hn::MaskFromVec(hn::BitCast(d, hn::LoadU(di, kPlaces.newest.data() + j * kStepLanes)));
      // WHY in place: what is read one float ahead has not been written yet.
      const auto shifted = hn::LoadU(d, states + at + 1);
      hn::StoreU(hn::IfThenElse(here, hn::TableLookupLanes(newest, lanes), shifted), d,
                 new_states + at);
    }
  }
}

/// Whether convolve_step() does this sequence.
inline bool is_plain_step(const ConvSequence& s, int64_t count) noexcept {
  const core::CausalConvProblem& problem = s.problem;
  const auto dense = [&](const core::Tensor& pool) {
    return !core::present(pool) || (pool.stride[2] == 1 && pool.stride[1] == problem.L);
  };
  return s.range.size() == 1 && problem.W == kStepWidth && (problem.L == 3 || problem.L == 4) &&
         !s.ring() && !s.speculative() && count % kStepLanes == 0 &&
         problem.weight.stride[1] == 1 && problem.weight.stride[0] == kStepWidth &&
         dense(problem.state.initial) && dense(problem.state.final);
}

/// The one token of channels first .. first + count - 1 (at most kConvChannels) into `out`, and
/// their new state. Needs is_plain_step().
inline void convolve_step(const ConvSequence& s, int64_t first, int64_t count,
                          float* out) noexcept {
  const core::CausalConvProblem& problem = s.problem;
  const int64_t L = problem.L;
  const core::Tensor &w = problem.weight, &from = problem.state.initial, &to = problem.state.final;
  HWY_ALIGN float states[kMaxWidth * kConvChannels + 1], weights[kStepWidth * kConvChannels];
  HWY_ALIGN float bias[kConvChannels], x[kConvChannels];
  // WHY states always go through a copy: the shift reads one float past them.
  states[count * L] = 0.0f;
  if (s.plan.read < 0) {
    std::fill_n(states, count * L, 0.0f);
  } else {
    read_dense(core::address(from, s.plan.read, first, 0), from.dtype, count * L, states);
  }
  if (core::present(problem.bias)) {
    read_strided(core::address(problem.bias, first), problem.bias.dtype, problem.bias.stride[0],
                 count, bias);
  } else {
    std::fill_n(bias, count, 0.0f);
  }
  read_inputs(s, 0, first, count, x);
  const void* const weight_rows = core::address(w, first, 0);
  const float* rows = static_cast<const float*>(weight_rows);
  if (!core::same(w.dtype, core::kFloat32)) {
    read_dense(weight_rows, w.dtype, count * kStepWidth, weights);
    rows = weights;
  }
  void* const target = s.plan.write < 0 ? nullptr : core::address(to, s.plan.write, first, 0);
  const bool direct = target != nullptr && core::same(to.dtype, core::kFloat32);
  float* const new_states = direct ? static_cast<float*>(target) : states;
  const bool with_silu = problem.activation == SLUICE_ACTIVATION_SILU;
  if (L == 3) {
    step_channels<3>(with_silu, count, rows, bias, x, states, new_states, out);
  } else {
    step_channels<4>(with_silu, count, rows, bias, x, states, new_states, out);
  }
  if (target != nullptr && !direct) write_dense(states, count * L, target, to.dtype);
}
#else
/// One lane has nothing to take apart.
inline bool is_plain_step(const ConvSequence& /*s*/, int64_t /*count*/) noexcept { return false; }
inline void convolve_step(const ConvSequence& /*s*/, int64_t /*first*/, int64_t /*count*/,
                          float* /*out*/) noexcept {}
#endif

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CONV_STEP_INL_H_
