// Runs the kernels of chunk_backward on the CPU, by the emulator, but for the gradients by chunk.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/backward/chain.cuh"
#include "cuda/kernels/backward/chain_tiles.cuh"
#include "cuda/kernels/backward/gradients.cuh"
#include "cuda/kernels/backward/key_tokens.cuh"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/backward/segment_fold.cuh"
#include "cuda/kernels/backward/solve_tiles.cuh"
#include "emulated_backward.hpp"
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
                                head_sums_kernel,
                                chunk_sums_kernel};
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

constexpr int kEmulatedCtas = 3;  ///< as many as run_ctas() has at most

template <Solve kSolve>
void run_solve(const BackwardParams& p, Launcher& launcher) {
  run_tiles(solve_tiles_kernel<__nv_bfloat16, kSolve>, solve_tiles_kernel<__half, kSolve>, p,
            p.d_o.number == Number::kBfloat16, slot_count(p) * p.stage.H, kSolveThreads, launcher);
}

template <class Bf16, class Half>
void run_width(ChainParams p, Launcher& launcher) {
  deal_items(Bf16::kV == 128, !Bf16::kBack, 0, kEmulatedCtas, &p);
  if (!launcher.ok() || p.items == 0) return;
  const auto kernel =
      p.all.d_o.number == Number::kBfloat16 ? chain_tiles_kernel<Bf16> : chain_tiles_kernel<Half>;
  launcher.note(run_ctas(p.ctas, Bf16::kThreads, emulation::kSharedBytes, [&] { kernel(p); }));
}

template <Chain kChain>
void run_chain(const ChainParams& p, bool wide, Launcher& launcher) {
  if constexpr (kChain != Chain::kLinear) {
    if (p.all.window.exists()) {
      return run_width<WindowChainConfig<__nv_bfloat16, kChain>, WindowChainConfig<__half, kChain>>(
          p, launcher);
    }
  }
  wide ? run_width<ChainConfig<__nv_bfloat16, 128, kChain>, ChainConfig<__half, 128, kChain>>(
             p, launcher)
       : run_width<ChainConfig<__nv_bfloat16, 64, kChain>, ChainConfig<__half, 64, kChain>>(
             p, launcher);
}

}  // namespace

void launch_prepare(const BackwardParams& params, Launcher& launcher) noexcept {
  if (!has_aligned_keys(params)) return launch(Kernel::kPrepare, params, launcher);
  if (!params.delta_rule) run_solve<Solve::kPrepare>(params, launcher);
}

void launch_maxima(const BackwardParams& params, Launcher& launcher) noexcept {
  if (params.maxima == nullptr) return;
  run_tiles(maxima_kernel<__nv_bfloat16>, maxima_kernel<__half>, params,
            params.d_o.number == Number::kBfloat16, slot_count(params) * params.stage.HV,
            kScaleThreads, launcher);
}

void launch_solve(const BackwardParams& params, Launcher& launcher) noexcept {
  if (params.window.exists()) return run_solve<Solve::kWindow>(params, launcher);
  has_aligned_keys(params) ? run_solve<Solve::kBoth>(params, launcher)
                           : run_solve<Solve::kSolve>(params, launcher);
}

namespace {

ChainParams states_of(const BackwardParams& params, const TileTensors& t) {
  return {{},
          emulated_map(t.k, 64, 128),
          emulated_map(t.v, 64, 64),
          emulated_map(t.B, 64, 64),
          emulated_map(t.e, 64, 64),
          emulated_map(t.S, 128, 64),
          params,
          t.states_per_batch,
          0,
          0,
          0,
          ChainPass::kWhole};
}

ChainParams gradients_of(const BackwardParams& given, const TileTensors& t) {
  BackwardParams params = given;
  params.dv = values_of_chain(given);
  return {emulated_map(t.q, 64, 128),
          emulated_map(t.k, 64, 128),
          emulated_map(t.d_o, 64, 64),
          emulated_map(t.B, 64, 64),
          emulated_map(t.dv, 64, 64),
          emulated_map(t.D, 128, 64),
          params,
          t.states_per_batch,
          0,
          0,
          0,
          ChainPass::kWhole};
}

bool is_wide(const BackwardParams& params, const Launcher& launcher) {
  if (params.window.exists()) return false;
  if (params.cut.exists()) return params.stage.V == 128;
  return has_wide_chain(params.stage, launcher.machine().multiprocessors);
}

template <int kK>
void run_fold(const BackwardParams& p, Launcher& launcher) {
  const int64_t items = 2 * fold_chains(p.cut, p.stage.N) * p.stage.HV * (kK / kFoldColumns);
  if (!launcher.ok() || items == 0) return;
  launcher.note(run_ctas(items, kFoldThreads<kK>, sizeof(FoldShared<kK>),
                         [&] { segment_fold_kernel<kK>(p, items); }));
}

}  // namespace

void launch_chain(const BackwardParams& params, const TileTensors& t, ChainPass pass,
                  Launcher& launcher) noexcept {
  ChainParams p = gradients_of(params, t);
  p.pass = pass;
  const bool wide = is_wide(params, launcher);
  params.delta_rule ? run_chain<Chain::kDelta>(p, wide, launcher)
                    : run_chain<Chain::kLinear>(p, wide, launcher);
}

void launch_states(const BackwardParams& params, const TileTensors& t, ChainPass pass,
                   Launcher& launcher) noexcept {
  ChainParams p = states_of(params, t);
  p.pass = pass;
  run_chain<Chain::kStates>(p, is_wide(params, launcher), launcher);
}

void launch_fold(const BackwardParams& params, Launcher& launcher) noexcept {
  params.stage.K == 64 ? run_fold<64>(params, launcher) : run_fold<128>(params, launcher);
}

namespace {

void run_both(BothChainsParams& p, Launcher& launcher) {
  deal_items(false, false, 0, 1, &p.gradients);
  deal_items(false, true, p.gradients.ctas, kEmulatedCtas - 1, &p.states);
  const int ctas = p.gradients.ctas + p.states.ctas;
  if (!launcher.ok() || ctas == 0) return;
  const auto kernel = p.states.all.d_o.number == Number::kBfloat16
                          ? both_chains_kernel<__nv_bfloat16>
                          : both_chains_kernel<__half>;
  launcher.note(run_ctas(ctas, ChainConfig<__half, 64, Chain::kDelta>::kThreads,
                         emulation::kSharedBytes, [&] { kernel(p); }));
}

/// As a GPU runs few items, or many.
void run_pass(ChainPass pass, bool many, BothChainsParams& p, Launcher& launcher) {
  p.gradients.pass = p.states.pass = pass;
  if (!many) return run_both(p, launcher);
  const bool wide = p.states.all.stage.V == 128;
  run_chain<Chain::kStates>(p.states, wide, launcher);
  run_chain<Chain::kDelta>(p.gradients, wide, launcher);
}

}  // namespace

void launch_chains(const BackwardParams& params, const TileTensors& t,
                   Launcher& launcher) noexcept {
  BothChainsParams p{gradients_of(params, t), states_of(params, t)};
  const int multiprocessors = launcher.machine().multiprocessors;
  if (params.cut.exists()) {
    static bool many = false;  // calls by turns
    many = !many;
    run_pass(ChainPass::kMaps, many, p, launcher);
    launch_fold(params, launcher);
    return run_pass(ChainPass::kSegments, many, p, launcher);
  }
  if (has_both_chains(params.stage, multiprocessors)) return run_both(p, launcher);
  const bool wide = has_wide_chain(params.stage, multiprocessors);
  run_chain<Chain::kStates>(p.states, wide, launcher);
  launch_chain(params, t, ChainPass::kWhole, launcher);
}

}  // namespace backward

}  // namespace sluice::cuda
