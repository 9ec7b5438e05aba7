// Runs the kernels of chunk_backward on the CPU, by the emulator.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/chain.cuh"
#include "cuda/kernels/backward/chain_tiles.cuh"
#include "cuda/kernels/backward/gradient_tiles.cuh"
#include "cuda/kernels/backward/gradients.cuh"
#include "cuda/kernels/backward/key_tokens.cuh"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/backward/prepare_tiles.cuh"
#include "cuda/kernels/backward/solve_tiles.cuh"
#include "emulated_ctas.hpp"

namespace sluice::cuda {

namespace backward {

namespace {

using Function = void (*)(BackwardParams, int64_t);

Function function_of(Kernel kernel, const BackwardParams& p) {
  const bool narrow = p.stage.K <= kNarrowK;
  const Function functions[] = {narrow ? prepare_kernel<kNarrowK> : prepare_kernel<kMaxK>,
                                local_kernel,
                                chain_kernel,
                                gradients_kernel,
                                narrow ? keys_kernel<kNarrowK> : keys_kernel<kMaxK>,
                                head_sums_kernel};
  return functions[static_cast<int>(kernel)];
}

}  // namespace

void launch(Kernel kernel, const BackwardParams& params, Launcher& launcher) noexcept {
  if (!launcher.ok()) return;
  const Launch plan = plan_launch(kernel, params);
  const Function function = function_of(kernel, params);
  launcher.note(
      run_ctas(plan.items, plan.threads, plan.shared_bytes, [&] { function(params, plan.items); }));
}

void launch_key_wise(const KeyBackwardParams& params, Launcher& launcher) noexcept {
  if (!launcher.ok()) return;
  const StageParams& p = params.all.stage;
  const int64_t items = p.N * p.HV;
  launcher.note(
      run_ctas(items, kKeyThreads, key_bytes(p.K, p.V), [&] { key_tokens_kernel(params, items); }));
  if (params.bias_parts == nullptr && params.rate_parts == nullptr) return;
  launcher.note(run_ctas(p.HV, kKeyThreads, 0, [&] { key_sums_kernel(params, p.HV); }));
}

int load_kernels() noexcept { return 0; }
int load_tile_kernels() noexcept { return 0; }

namespace {

/// Runs a kernel with items that share a CTA, unless there are none.
template <class Params>
void run_tiles(void (*bf16)(Params, int64_t), void (*fp16)(Params, int64_t), const Params& p,
               bool is_bf16, int64_t items, int threads, Launcher& launcher) {
  if (!launcher.ok() || items == 0) return;
  launcher.note(run_persistent(is_bf16 ? bf16 : fp16, p, items, threads));
}

int64_t chunks_of(const StageParams& p) {
  return p.cu_seqlens.data != nullptr ? p.slots : p.N * p.slots;
}

template <Chain kChain, int kV>
void run_width(const ChainParams& p, int64_t items, Launcher& launcher) {
  using Bf16 = ChainConfig<__nv_bfloat16, kV, kChain>;
  run_tiles(chain_tiles_kernel<Bf16>, chain_tiles_kernel<ChainConfig<__half, kV, kChain>>, p,
            p.all.d_o.number == Number::kBfloat16, items, Bf16::kThreads, launcher);
}

template <Chain kChain>
void run_chain(const ChainParams& p, Launcher& launcher) {
  const StageParams& stage = p.all.stage;
  const int64_t items = stage.N * stage.HV;
  has_wide_chain(stage, launcher.machine().multiprocessors)
      ? run_width<kChain, 128>(p, items, launcher)
      : run_width<kChain, 64>(p, 2 * items, launcher);
}

template <bool kDelta>
void run_gradients(const GradientParams& p, int64_t items, Launcher& launcher) {
  using Bf16 = GradientConfig<__nv_bfloat16, kDelta>;
  run_tiles(gradient_tiles_kernel<Bf16>, gradient_tiles_kernel<GradientConfig<__half, kDelta>>, p,
            p.all.d_o.number == Number::kBfloat16, items, Bf16::kThreads, launcher);
}

}  // namespace

void launch_prepare(const BackwardParams& params, Launcher& launcher) noexcept {
  if (!has_aligned_keys(params)) return launch(Kernel::kPrepare, params, launcher);
  const StageParams& p = params.stage;
  run_tiles(prepare_tiles_kernel<__nv_bfloat16>, prepare_tiles_kernel<__half>, params,
            params.d_o.number == Number::kBfloat16, p.cu_seqlens.data != nullptr ? p.T : p.N * p.T,
            kThreads, launcher);
}

void launch_maxima(const BackwardParams& params, Launcher& launcher) noexcept {
  if (params.maxima == nullptr) return;
  run_tiles(maxima_kernel<__nv_bfloat16>, maxima_kernel<__half>, params,
            params.d_o.number == Number::kBfloat16, chunks_of(params.stage) * params.stage.HV,
            kScaleThreads, launcher);
}

void launch_solve(const BackwardParams& params, Launcher& launcher) noexcept {
  run_tiles(solve_tiles_kernel<__nv_bfloat16>, solve_tiles_kernel<__half>, params,
            params.d_o.number == Number::kBfloat16, chunks_of(params.stage) * params.stage.HV,
            kSolveThreads, launcher);
}

void launch_states(const BackwardParams& params, const TileTensors& t,
                   Launcher& launcher) noexcept {
  const ChainParams p{{},
                      emulated_map(t.k, 64, 128),
                      emulated_map(t.v, 64, 64),
                      emulated_map(t.B, 64, 64),
                      emulated_map(t.e, 64, 64),
                      emulated_map(t.S, 128, 64),
                      params,
                      t.states_per_batch};
  run_chain<Chain::kStates>(p, launcher);
}

void launch_chain(const BackwardParams& params, const TileTensors& t, Launcher& launcher) noexcept {
  const ChainParams p{emulated_map(t.q, 64, 128),
                      emulated_map(t.k, 64, 128),
                      emulated_map(t.d_o, 64, 64),
                      emulated_map(t.B, 64, 64),
                      emulated_map(t.dv, 64, 64),
                      emulated_map(t.D, 128, 64),
                      params,
                      t.states_per_batch};
  params.delta_rule ? run_chain<Chain::kDelta>(p, launcher)
                    : run_chain<Chain::kLinear>(p, launcher);
}

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
  const int64_t items = chunks_of(params.stage) * params.stage.H;
  params.delta_rule ? run_gradients<true>(p, items, launcher)
                    : run_gradients<false>(p, items, launcher);
}

}  // namespace backward

}  // namespace sluice::cuda
