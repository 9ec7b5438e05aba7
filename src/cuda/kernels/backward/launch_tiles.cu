// Launches the tensor-core kernels of chunk_backward: encodes tensor maps and picks instances.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/backward/instances.h"
#include "cuda/kernels/backward/launch.h"
#include "cuda/kernels/backward/tile_config.h"
#include "cuda/tile/tensor_map.h"

namespace sluice::cuda::backward {
namespace {

/// Of a grid, along y.
constexpr int64_t kMaxGridRows = (int64_t{1} << 16) - 1;

const RowInstances& rows_of(const BackwardParams& params) noexcept {
  return params.d_o.number == Number::kBfloat16 ? bf16_rows() : fp16_rows();
}

const ChainInstances& chains_of(const BackwardParams& params) noexcept {
  return params.d_o.number == Number::kBfloat16 ? bf16_chains() : fp16_chains();
}

device::Instance both_chains_of(const BackwardParams& params) noexcept {
  return params.d_o.number == Number::kBfloat16 ? bf16_both_chains() : fp16_both_chains();
}

/// A tensor's map with boxes of that many rows and blocks of 64 columns; true if it is absent.
bool encode(CUtensorMap* map, const tile::TokenTensor& tensor, uint32_t rows,
            uint32_t blocks) noexcept {
  return tensor.data == nullptr || tile::encode_token_map(map, tensor, rows, blocks);
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
  p->all.dv = values_of_chain(params);
  return encode(&p->q, t.q, 64, 2) && encode(&p->k, t.k, 64, 2) && encode(&p->rows, t.d_o, 64, 1) &&
         encode(&p->B, t.B, 64, 1) && encode(&p->out, t.dv, 64, 1) &&
         encode(&p->state, t.D, 128, 1);
}

/// Whether items have 128 columns of V where each chain has a launch of its own.
bool is_wide(const BackwardParams& params, const Launcher& launcher) noexcept {
  if (params.window.exists()) return false;
  if (params.cut.exists()) return params.stage.V == 128;
  return has_wide_chain(params.stage, launcher.machine().multiprocessors);
}

/// Runs a chain whose maps are there if `encoded`.
void run_chain(Chain chain, bool encoded, bool wide, ChainParams& p, Launcher& launcher) noexcept {
  deal_items(wide, chain == Chain::kStates, 0, launcher.machine().multiprocessors, &p);
  if (p.items == 0) return;
  if (!encoded) return launcher.note_invalid();
  const ChainInstances& chains = chains_of(p.all);
  const auto which = static_cast<int>(chain);
  const device::Instance& instance =
      p.all.window.exists() ? chains.window[which] : chains.chain[which][wide];
  launcher(instance, grid_of(p.ctas), p);
}

void run_solve(Solve which, const BackwardParams& params, Launcher& launcher) noexcept {
  const StageParams& p = params.stage;
  const int64_t items = slot_count(params) * p.H;
  if (items == 0) return;
  const device::Instance& instance = rows_of(params).solve[static_cast<int>(which)];
  // PERF where there are few, value heads have CTAs of their own.
  const bool few = items < kSolveCtas * launcher.machine().multiprocessors;
  GridSize grid = grid_of(items);
  if (few) grid.y = grid_of(p.r, kMaxGridRows).x;
  launcher(instance, grid, params, items);
}

}  // namespace

int load_tile_kernels() noexcept {
  KernelLoader load;
  for (const auto get : {bf16_rows, fp16_rows}) {
    const RowInstances& rows = get();
    load(rows.maxima, rows.solve, rows.gradients, rows.window_gradients);
    load(rows.values);
  }
  for (const auto get : {bf16_chains, fp16_chains}) load(get().chain, get().window);
  for (const auto get : {bf16_both_chains, fp16_both_chains}) load(get());
  for (const bool narrow : {false, true}) load(segment_fold(narrow));
  return load.error();
}

void launch_prepare(const BackwardParams& params, Launcher& launcher) noexcept {
  if (!has_aligned_keys(params)) return launch(Kernel::kPrepare, params, launcher);
  if (!params.delta_rule) run_solve(Solve::kPrepare, params, launcher);
}

void launch_maxima(const BackwardParams& params, Launcher& launcher) noexcept {
  const int64_t items = slot_count(params) * params.stage.HV;
  if (params.maxima == nullptr || items == 0) return;
  launcher(rows_of(params).maxima, grid_of(items), params, items);
}

void launch_solve(const BackwardParams& params, Launcher& launcher) noexcept {
  const Solve prepared = params.window.exists() ? Solve::kWindow : Solve::kSolve;
  run_solve(has_aligned_keys(params) ? Solve::kBoth : prepared, params, launcher);
}

void launch_chain(const BackwardParams& params, const TileTensors& tensors, ChainPass pass,
                  Launcher& launcher) noexcept {
  ChainParams p{};
  p.pass = pass;
  const bool encoded = fill_gradients(params, tensors, &p);
  run_chain(params.delta_rule ? Chain::kDelta : Chain::kLinear, encoded, is_wide(params, launcher),
            p, launcher);
}

void launch_states(const BackwardParams& params, const TileTensors& tensors, ChainPass pass,
                   Launcher& launcher) noexcept {
  ChainParams p{};
  p.pass = pass;
  const bool encoded = fill_states(params, tensors, &p);
  run_chain(Chain::kStates, encoded, is_wide(params, launcher), p, launcher);
}

void launch_fold(const BackwardParams& params, Launcher& launcher) noexcept {
  const device::Instance fold = segment_fold(params.stage.K == 64);
  const int64_t items = 2 * fold_chains(params.cut, params.stage.N) * params.stage.HV *
                        (params.stage.V / kFoldColumns);
  launcher(fold, grid_of(items), params, items);
}

namespace {

/// Both chains whose maps are there, in one launch: a CTA for each item, or for several in turn.
void run_both(const device::Instance& instance, BothChainsParams& p, int64_t most_each,
              Launcher& launcher) noexcept {
  deal_items(false, false, 0, most_each, &p.gradients);
  deal_items(false, true, p.gradients.ctas, most_each, &p.states);
  const int ctas = p.gradients.ctas + p.states.ctas;
  if (ctas == 0) return;
  launcher(instance, grid_of(ctas), p);
}

/// A pass over segments. PERF gradients come first, whose items take longest; CTAs of states begin
/// where the others leave multiprocessors, and follow each other there.
void run_pass(ChainPass pass, BothChainsParams& p, Launcher& launcher) noexcept {
  p.gradients.pass = p.states.pass = pass;
  const StageParams& s = p.states.all.stage;
  const int multiprocessors = launcher.machine().multiprocessors;
  const int64_t most = int64_t{kMostRounds} * multiprocessors,
                items = chain_items(p.states.all.cut, pass, true, s.N, s.HV, s.V / 64);
  if (items <= most) return run_both(both_chains_of(p.states.all), p, items, launcher);
  run_chain(Chain::kStates, true, s.V == 128, p.states, launcher);
  run_chain(Chain::kDelta, true, s.V == 128, p.gradients, launcher);
}

}  // namespace

void launch_chains(const BackwardParams& params, const TileTensors& tensors,
                   Launcher& launcher) noexcept {
  const int multiprocessors = launcher.machine().multiprocessors;
  if (!params.cut.exists() && !has_both_chains(params.stage, multiprocessors)) {
    launch_states(params, tensors, ChainPass::kWhole, launcher);
    return launch_chain(params, tensors, ChainPass::kWhole, launcher);
  }
  BothChainsParams p{};
  if (!fill_states(params, tensors, &p.states) || !fill_gradients(params, tensors, &p.gradients)) {
    return launcher.note_invalid();
  }
  if (!params.cut.exists()) {
    return run_both(both_chains_of(params), p, multiprocessors / 2, launcher);
  }
  run_pass(ChainPass::kMaps, p, launcher);
  launch_fold(params, launcher);
  run_pass(ChainPass::kSegments, p, launcher);
}

void launch_gradients(const BackwardParams& params, const TileTensors& tensors,
                      Launcher& launcher) noexcept {
  const StageParams& stage = params.stage;
  const int64_t items = slot_count(params) * stage.H;
  if (items == 0) return;
  GradientParams p{};
  p.all = params;
  p.states_per_batch = tensors.states_per_batch;
  const bool encoded = encode(&p.q, tensors.q, 64, 2) && encode(&p.k, tensors.k, 64, 2) &&
                       encode(&p.d_o, tensors.d_o, 64, 2) && encode(&p.e, tensors.e, 64, 2) &&
                       (!params.delta_rule || encode(&p.dv, tensors.dv, 64, 2)) &&
                       encode(&p.S, tensors.S, 128, 2) && encode(&p.D, tensors.D, 128, 2);
  if (!encoded) return launcher.note_invalid();
  const RowInstances& rows = rows_of(params);
  launcher(params.window.exists() ? rows.window_gradients : rows.gradients[params.delta_rule],
           grid_of(items, launcher.machine().multiprocessors), p, items);
  if (has_value_rows(params)) {
    const int64_t values = slot_count(params) * stage.HV;
    launcher(rows.values, grid_of(values), params, values);
  }
}

}  // namespace sluice::cuda::backward
