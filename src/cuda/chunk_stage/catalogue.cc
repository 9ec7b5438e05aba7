// Lists the kernels of chunk_stage: Hopper's own, then tensor cores of any GPU, then plain ones.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <utility>

#include "cuda/catalogues.h"
#include "cuda/chunk_forward/cut.h"
#include "cuda/chunk_forward/lower.h"
#include "cuda/chunk_forward/rows.h"
#include "cuda/chunk_stage/accepts.h"
#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/stages/compact.h"
#include "cuda/workspace_layout.h"

namespace sluice::cuda {
namespace {

using core::ChunkStageProblem, core::Plan, core::present;
using device::StageParams, device::TokenRows;
using StageKernel = stages::Kernel;

// ---------------------------------------------------------------------------------- Hopper ----

constexpr const char* kSizes[] = {"k64", "k128"};
constexpr NameTable kLinearNames("cuda.chunk_o.sm_90a.states.", kTypeWords, kSizes, kCutSuffixes);
constexpr NameTable kOutputNames("cuda.chunk_o.sm_90a.", kTypeWords, kSizes);
constexpr NameTable kStateNames("cuda.chunk_h.sm_90a.", kTypeWords, kSizes);

Status plan_linear(const ChunkStageProblem& p, const Machine& machine, const Environment& env,
                   Plan* plan) noexcept {
  const core::DeltaRuleProblem linear = as_linear_attention(p);
  Plan found;
  const Status status =
      plan_by(one_launch_kernels(), linear, machine, env, core::PlanFor::kCall, &found);
  if (!status.ok()) return status;
  const auto cut = found.kept<device::CutRequest>();
  plan->kernel = kLinearNames.at(type_index(p.k.dtype), p.K / 128, cut_suffix(cut, p.V));
  plan->workspace_bytes = found.workspace_bytes;
  plan->keep(cut);
  return ok_status();
}
void launch_linear(const ChunkStageProblem& p, const Plan& plan, void* workspace,
                   Launcher& launcher) noexcept {
  prefill::launch(lower_linear_stage(p, plan.kept<device::CutRequest>()),
                  lower_tensors(as_linear_attention(p)), workspace, launcher);
}

template <const auto& kRowNames>
Status plan_hopper(const ChunkStageProblem& p, const Machine&, const Environment&,
                   Plan* plan) noexcept {
  plan->kernel = kRowNames.at(type_index(p.k.dtype), p.K / 128);
  return ok_status();
}
void launch_hopper_outputs(const ChunkStageProblem& p, const Plan&, void*,
                           Launcher& launcher) noexcept {
  chunk_o::launch(lower_stage(p), lower_output_tensors(p),
                  static_cast<int32_t>(states_per_batch(p)), launcher);
}
void launch_hopper_states(const ChunkStageProblem& p, const Plan&, void*,
                          Launcher& launcher) noexcept {
  chunk_h::launch(lower_stage(p), lower_state_tensors(p), static_cast<int32_t>(states_per_batch(p)),
                  launcher);
}

// ------------------------------------------------------------------------------- every GPU ----

/// What a name has after that of the stage.
enum Form { kOnly, kPlain, kPlainStates, kTiles, kTilesStates, kTilesKeyWise, kCompact };
constexpr const char* kForms[] = {
    "", ".plain", ".plain.states", ".tiles", ".tiles.states", ".tiles.key_wise", ".compact"};
constexpr auto stage_at(int stage) { return core::stage_name(static_cast<sluice_stage>(stage)); }
constexpr const char* kStages[] = {stage_at(0), stage_at(1), stage_at(2), stage_at(3),
                                   stage_at(4), stage_at(5), stage_at(6), stage_at(7)};
static_assert(std::size(kStages) == core::kStages);
constexpr NameTable kNames("cuda.", kStages, kForms);

Form form_of(StageKernel kernel, sluice_stage stage) noexcept {
  if (kernel == StageKernel::kCumsum || kernel == StageKernel::kSolve) return kOnly;
  if (kernel == StageKernel::kKeyStates) return kTilesKeyWise;
  const bool states = kernel == StageKernel::kGla ||
                      (kernel == StageKernel::kPlainChain && stage == SLUICE_STAGE_CHUNK_O);
  if (stages::is_plain(kernel)) return states ? kPlainStates : kPlain;
  return states ? kTilesStates : kTiles;
}

/// What a stage of these runs, and how simple GLA is cut.
struct StageChoice {
  StageKernel kernel;
  int64_t segment_tokens;  ///< 0: sequences are not cut
};

/// Whether a stage reads sums of key-wise gates.
bool reads_key_sums(const ChunkStageProblem& p) noexcept {
  return p.stage != SLUICE_STAGE_CHUNK_CUMSUM && p.key_gates;
}

/// What a stage of key-wise gates keeps in its workspace, dense: sums of gates that are not given
/// and not wanted, and keys with their decays, of chunk_h by tensor cores.
struct KeyMemory {
  TokenRows sums{}, keys{};
  size_t bytes;

  KeyMemory(const ChunkStageProblem& p, StageKernel kernel, void* base) noexcept {
    WorkspaceLayout layout(base);
    const int64_t token = p.HV * p.K, rows = p.rows.B * p.rows.T;
    const TokenRows dense{nullptr, p.rows.T * token, token, p.K, number_type(p.k.dtype)};
    if (present(p.gate) && !present(p.g_cumsum)) {
      sums = dense;
      sums.number = device::Number::kFloat32;
      sums.data = layout.take<float>(rows * token);
    }
    if (kernel == StageKernel::kKeyStates) {
      keys = dense;
      keys.data = layout.take<uint16_t>(rows * token);
    }
    bytes = layout.bytes();
  }
};

size_t workspace_of(const ChunkStageProblem& p, const StageChoice& choice) noexcept {
  if (reads_key_sums(p)) return KeyMemory(p, choice.kernel, nullptr).bytes;
  const StageParams sizes = lower_stage_sizes(p, p.C);
  return static_cast<size_t>(stages::segment_bytes(sizes, choice.segment_tokens));
}

/// @tparam kernel_of which kernel a stage has
template <StageKernel (*kernel_of)(const ChunkStageProblem&) noexcept>
Status plan_stage(const ChunkStageProblem& p, const Machine& machine, const Environment&,
                  Plan* plan) noexcept {
  const StageKernel kernel = kernel_of(p);
  const StageParams sizes = lower_stage_sizes(p, p.C);
  const bool is_gla = kernel == StageKernel::kGla;
  const StageChoice choice{kernel,
                           is_gla ? stages::segment_tokens(sizes, machine.multiprocessors) : 0};
  const bool compact = !reads_key_sums(p) && stages::has_compact_form(kernel) &&
                       stages::is_compact(kernel, lower_stage(p), lower_sum_gates(p));
  plan->kernel = kNames.at(p.stage, compact ? kCompact : form_of(kernel, p.stage));
  plan->workspace_bytes = workspace_of(p, choice);
  plan->keep(choice);
  return ok_status();
}

/// A stage with key-wise gates: their sums, of chunk_h keys with their decays, the stage.
void launch_with_keys(const ChunkStageProblem& p, StageKernel kernel, void* workspace,
                      Launcher& launcher) noexcept {
  const KeyMemory memory(p, kernel, workspace);
  StageParams params = lower_stage(p);
  if (present(p.gate)) {
    params.g_cumsum = present(p.g_cumsum) ? std::exchange(params.sums, {}) : memory.sums;
    StageParams sums = as_channel_sums(params);
    sums.reverse = false;
    stages::launch(StageKernel::kCumsum, sums, launcher);
    params.gate = {};
  }
  if (kernel == StageKernel::kKeyStates) {
    params.o = memory.keys;
    stages::launch(StageKernel::kScaleKeys, params, launcher);
    params.k = std::exchange(params.o, {});
    params.H = params.HV, params.r = 1, params.head_map_cyclic = false;
    params.columns = device::kColumns / 2;
  }
  stages::launch(kernel, params, launcher);
}

/// One launch, or three where simple GLA is cut into segments.
void launch_stage(const ChunkStageProblem& p, const Plan& plan, void* workspace,
                  Launcher& launcher) noexcept {
  const auto choice = plan.kept<StageChoice>();
  if (reads_key_sums(p)) return launch_with_keys(p, choice.kernel, workspace, launcher);
  StageParams params = lower_stage(p);
  params.columns = stages::state_columns(params, launcher.machine().multiprocessors);
  if (choice.segment_tokens > 0) {
    stages::cut(choice.segment_tokens, workspace, &params);
    params.segments.states_only = true;
    stages::launch(choice.kernel, params, launcher);
    stages::launch(StageKernel::kJoin, params, launcher);
    params.segments.states_only = false;
  }
  stages::launch(choice.kernel, params, launcher, lower_sum_gates(p));
}

constexpr Kernel<ChunkStageProblem> kCatalogue[] = {
    {"chunk_stage.linear_attention",
     "chunk_o without h: bfloat16 or float16, K of 64 or 128, V a multiple of 64, rows aligned to "
     "16 bytes, compute capability 9.0",
     Tier::kFast, accept_linear_stage, accept_packed_addresses, plan_linear, launch_linear,
     nullptr},
    {"chunk_stage.chunk_o",
     "chunk_o with h: chunks of 64, states in KV, otherwise as linear_attention", Tier::kFast,
     accept_hopper_outputs, accept_packed_addresses, plan_hopper<kOutputNames>,
     launch_hopper_outputs, load_on_hopper<chunk_o::load_kernels>},
    {"chunk_stage.chunk_h", "chunk_h with w: chunks of 64, h in KV, otherwise as linear_attention",
     Tier::kFast, accept_hopper_states, accept_packed_addresses, plan_hopper<kStateNames>,
     launch_hopper_states, load_on_hopper<chunk_h::load_kernels>},
    {"chunk_stage.tiles",
     "bfloat16 or float16 by tensor cores: chunks of 64 or 128, K and V multiples of 64, with "
     "states K of 64 or 128, rows aligned to 16 bytes, compute capability 8.0 or newer",
     Tier::kAny, accept_tiles, accept_packed_addresses, plan_stage<tile_kernel>, launch_stage,
     [](const Machine&) noexcept { return stages::load_kernels(); }},
    {"chunk_stage.plain",
     "every option; K <= 512 where states are carried, compute capability 8.0 or newer", Tier::kAny,
     accept_plain, nullptr, plan_stage<plain_kernel>, launch_stage, nullptr},
};

}  // namespace

Catalogue<ChunkStageProblem> chunk_stage_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
