// Runs the gradients by chunk of chunk_backward on the CPU, by the emulator.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <vector>

#include "cuda/kernels/backward/gradient_tiles.cuh"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/backward/value_rows.cuh"
#include "emulated_backward.hpp"

namespace sluice::cuda::backward {

namespace {

/// What chains leave late: states are no numbers and chunks not counted until somebody has asked for
/// the count a few times, the last until somebody has waited for the chains' end.
class LateChunks {
 public:
  explicit LateChunks(const BackwardParams& p) : p_(p), counts_(p.ready, p.ready + count(p)) {
    if (counts_.empty()) return;
    asked_.resize(counts_.size());
    take(p.stage.h, &states_), take(p.dh, &gradients_);
    if (p.scales != nullptr) scales_.assign(p.scales, p.scales + p.stage.N * p.stage.HV);
    std::fill_n(p.scales, scales_.size(), std::numeric_limits<float>::quiet_NaN());
    std::fill_n(p.ready, counts_.size(), 0);
    emulation::asked_for = [this](const uint32_t* number) {
      const auto i = static_cast<size_t>(number - p_.ready);
      if (++asked_[i] == 3 && i + 1 < counts_.size()) bring(i);
    };
    emulation::earlier_launches = [this] {
      for (size_t i = 0; i < counts_.size(); ++i) bring(i);
    };
  }
  LateChunks(const LateChunks&) = delete;
  LateChunks& operator=(const LateChunks&) = delete;
  ~LateChunks() { emulation::asked_for = nullptr, emulation::earlier_launches = nullptr; }

 private:
  static size_t count(const BackwardParams& p) {
    return p.ready == nullptr ? 0 : static_cast<size_t>(p.dealt - p.ready);
  }
  void take(const device::ChunkStates& states, std::vector<uint16_t>* to) const {
    auto* const from = static_cast<uint16_t*>(states.data);
    to->assign(from, from + counts_.size() * static_cast<size_t>(states.head_stride));
    std::fill_n(from, to->size(), uint16_t{0xFFFF});
  }
  void bring(size_t i) {
    p_.ready[i] = counts_[i];
    const auto HV = static_cast<size_t>(p_.stage.HV), size = states_.size() / counts_.size();
    std::copy_n(&states_[i * size], size, static_cast<uint16_t*>(p_.stage.h.data) + i * size);
    std::copy_n(&gradients_[i * size], size, static_cast<uint16_t*>(p_.dh.data) + i * size);
    for (size_t at = i % HV; at < scales_.size(); at += HV) p_.scales[at] = scales_[at];
  }

  const BackwardParams& p_;
  std::vector<uint32_t> counts_;
  std::vector<int> asked_;
  std::vector<uint16_t> states_, gradients_;
  std::vector<float> scales_;
};

template <class Bf16, class Half>
void run_gradients(const GradientParams& p, int64_t items, Launcher& launcher) {
  run_tiles(gradient_tiles_kernel<Bf16>, gradient_tiles_kernel<Half>, p,
            p.all.d_o.number == Number::kBfloat16, items, Bf16::kThreads, launcher);
}

}  // namespace

void launch_gradients(const BackwardParams& params, const TileTensors& t,
                      Launcher& launcher) noexcept {
  const GradientParams p{emulated_map(t.q, 64, 128),
                         emulated_map(t.k, 64, 128),
                         emulated_map(t.d_o, 64, 128),
                         emulated_map(t.e, 64, 128),
                         emulated_map(t.dv, 64, 128),
                         emulated_map(t.S, 128, 128),
                         emulated_map(t.D, 128, 128),
                         params,
                         t.states_per_batch};
  const int64_t items = slot_count(params) * params.stage.H;
  const LateChunks late(params);
  if (params.window.exists()) {
    run_gradients<WindowGradientConfig<__nv_bfloat16>, WindowGradientConfig<__half>>(p, items,
                                                                                     launcher);
  } else if (params.delta_rule) {
    run_gradients<GradientConfig<__nv_bfloat16, true>, GradientConfig<__half, true>>(p, items,
                                                                                     launcher);
  } else {
    run_gradients<GradientConfig<__nv_bfloat16, false>, GradientConfig<__half, false>>(p, items,
                                                                                       launcher);
  }
  if (has_value_rows(params)) {
    run_tiles(value_rows_kernel<__nv_bfloat16>, value_rows_kernel<__half>, params,
              params.d_o.number == Number::kBfloat16, slot_count(params) * params.stage.HV,
              kValueThreads, launcher);
  }
}

}  // namespace sluice::cuda::backward
