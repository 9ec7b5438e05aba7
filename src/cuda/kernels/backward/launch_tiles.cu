// Launches the tensor-core kernels of chunk_backward: encodes tensor maps and picks instances.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/backward/instances.h"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/backward/tile_config.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::backward {
namespace {

constexpr int64_t kMaxGrid = (int64_t{1} << 31) - 1, kMaxGridRows = (int64_t{1} << 16) - 1;

const TileInstances& instances_of(const BackwardParams& params) noexcept {
  return params.d_o.number == Number::kBfloat16 ? bf16_tiles() : fp16_tiles();
}

int64_t chunks_of(const StageParams& p) noexcept {
  return p.cu_seqlens.data != nullptr ? p.slots : p.N * p.slots;
}

/// A tensor's map with boxes of that many rows and blocks of 64 columns; true if it is absent.
bool encode(CUtensorMap* map, const tile::TokenTensor& tensor, uint32_t rows,
            uint32_t blocks) noexcept {
  return tensor.data == nullptr || tile::encode_token_map(map, tensor, rows, blocks);
}

template <class Params>
void run(const device::Instance& instance, const Params& params, int64_t items, int64_t most,
         Launcher& launcher) noexcept {
  launcher(
      instance.kernel,
      {{static_cast<unsigned>(std::min(items, most))}, instance.threads, instance.shared_bytes},
      params, items);
}

/// Fills in a chain's parameters but for its maps.
void fill(const BackwardParams& params, const TileTensors& tensors, ChainParams* p) noexcept {
  p->all = params;
  p->states_per_batch = tensors.states_per_batch;
}

bool fill_states(const BackwardParams& params, const TileTensors& t, ChainParams* p) noexcept {
  fill(params, t, p);
  return encode(&p->k, t.k, 64, 2) && encode(&p->rows, t.v, 64, 1) && encode(&p->B, t.B, 64, 1) &&
         encode(&p->out, t.e, 64, 1) && encode(&p->state, t.S, 128, 1);
}

bool fill_gradients(const BackwardParams& params, const TileTensors& t, ChainParams* p) noexcept {
  fill(params, t, p);
  return encode(&p->q, t.q, 64, 2) && encode(&p->k, t.k, 64, 2) && encode(&p->rows, t.d_o, 64, 1) &&
         encode(&p->B, t.B, 64, 1) && encode(&p->out, t.dv, 64, 1) &&
         encode(&p->state, t.D, 128, 1);
}

/// Runs a chain whose maps are there if `encoded`.
void run_chain(Chain chain, bool encoded, ChainParams& p, Launcher& launcher) noexcept {
  const int multiprocessors = launcher.machine().multiprocessors;
  const bool wide = has_wide_chain(p.all.stage, multiprocessors);
  deal_items(wide, 0, multiprocessors, &p);
  if (p.items == 0) return;
  if (!encoded) return launcher.note(cudaErrorInvalidValue);
  const device::Instance& instance = instances_of(p.all).chain[static_cast<int>(chain)][wide];
  launcher(instance.kernel,
           {{static_cast<unsigned>(p.ctas)}, instance.threads, instance.shared_bytes}, p);
}

}  // namespace

int load_tile_kernels() noexcept {
  int error = 0;
  const auto load = [&](const device::Instance& instance) {
    if (error == 0 && instance.kernel != nullptr) error = load_kernel(instance.kernel);
  };
  for (const auto get : {bf16_tiles, fp16_tiles}) {
    const TileInstances& all = get();
    load(all.prepare);
    load(all.maxima);
    load(all.solve);
    for (const auto& widths : all.chain) load(widths[0]), load(widths[1]);
    load(all.both_chains);
    for (const bool delta : {false, true}) {
      load(all.gradients[delta]);
    }
  }
  return error;
}

void launch_prepare(const BackwardParams& params, Launcher& launcher) noexcept {
  if (!has_aligned_keys(params)) return launch(Kernel::kPrepare, params, launcher);
  const StageParams& p = params.stage;
  const int64_t items = p.cu_seqlens.data != nullptr ? p.T : p.N * p.T;
  if (items > 0) run(instances_of(params).prepare, params, items, kMaxGrid, launcher);
}

void launch_maxima(const BackwardParams& params, Launcher& launcher) noexcept {
  const int64_t items = chunks_of(params.stage) * params.stage.HV;
  if (params.maxima == nullptr || items == 0) return;
  run(instances_of(params).maxima, params, items, kMaxGrid, launcher);
}

void launch_solve(const BackwardParams& params, Launcher& launcher) noexcept {
  const StageParams& p = params.stage;
  const int64_t items = chunks_of(p) * p.H;
  if (items == 0) return;
  const device::Instance& instance = instances_of(params).solve;
  // PERF where there are few, value heads have CTAs of their own.
  const bool few = items < kSolveCtas * launcher.machine().multiprocessors;
  launcher(instance.kernel,
           {{static_cast<unsigned>(std::min(items, kMaxGrid)),
             few ? static_cast<unsigned>(std::min(p.r, kMaxGridRows)) : 1},
            instance.threads,
            instance.shared_bytes},
           params, items);
}

void launch_chain(const BackwardParams& params, const TileTensors& tensors,
                  Launcher& launcher) noexcept {
  ChainParams p{};
  const bool encoded = fill_gradients(params, tensors, &p);
  run_chain(params.delta_rule ? Chain::kDelta : Chain::kLinear, encoded, p, launcher);
}

void launch_chains(const BackwardParams& params, const TileTensors& tensors,
                   Launcher& launcher) noexcept {
  BothChainsParams p{};
  const bool encoded = fill_states(params, tensors, &p.states);
  const int multiprocessors = launcher.machine().multiprocessors;
  if (!has_both_chains(params.stage, multiprocessors)) {
    run_chain(Chain::kStates, encoded, p.states, launcher);
    return launch_chain(params, tensors, launcher);
  }
  if (!fill_gradients(params, tensors, &p.gradients) || !encoded) {
    return launcher.note(cudaErrorInvalidValue);
  }
  deal_items(false, 0, multiprocessors / 2, &p.gradients);
  deal_items(false, p.gradients.ctas, multiprocessors / 2, &p.states);
  const device::Instance& instance = instances_of(params).both_chains;
  const int ctas = p.gradients.ctas + p.states.ctas;
  launcher(instance.kernel,
           {{static_cast<unsigned>(ctas)}, instance.threads, instance.shared_bytes}, p);
}

void launch_gradients(const BackwardParams& params, const TileTensors& tensors,
                      Launcher& launcher) noexcept {
  const StageParams& stage = params.stage;
  const int64_t items = chunks_of(stage) * stage.H;
  if (items == 0) return;
  GradientParams p{};
  p.all = params;
  p.states_per_batch = tensors.states_per_batch;
  const bool encoded = encode(&p.q, tensors.q, 64, 2) && encode(&p.k, tensors.k, 64, 2) &&
                       encode(&p.d_o, tensors.d_o, 64, 2) && encode(&p.e, tensors.e, 64, 2) &&
                       (!params.delta_rule || encode(&p.dv, tensors.dv, 64, 2)) &&
                       encode(&p.S, tensors.S, 128, 2) && encode(&p.D, tensors.D, 128, 2);
  if (!encoded) return launcher.note(cudaErrorInvalidValue);
  run(instances_of(params).gradients[params.delta_rule], p, items,
      launcher.machine().multiprocessors, launcher);
}

}  // namespace sluice::cuda::backward
