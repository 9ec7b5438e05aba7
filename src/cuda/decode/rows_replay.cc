// Says which steps and layers the kernels with a replay ring take, and plans and launches them.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/lower.h"
#include "cuda/decode/rows.h"
#include "cuda/kernels/decode/instances.h"
#include "cuda/lower_views.h"

namespace sluice::cuda::decode {
namespace {

using core::present, core::Tensor;
using ll = long long;

constexpr const char* kKernel = "CUDA replay kernel";
/// Four numbers of an entry are one access.
constexpr int64_t kVector = 4;

Status check_entry_addresses(const char* op, const sluice_replay_ring& ring) noexcept {
  const auto check = [&](const char* name, const Tensor& t) {
    return check_address(op, name, t, kVector * t.dtype.bits / 8, kKernel);
  };
  const Status status = check("ring.k", ring.k);
  return status.ok() ? check("ring.delta", ring.delta) : status;
}

Status check_key_size(const char* op, const DeltaRuleProblem& p) noexcept {
  return check_at_most(op, "K", p.K, kMaxReplayK, kKernel);
}

/// Strides of entries, and shared memory of the widest grid.
Status check_entries(const char* op, const DeltaRuleProblem& p, const Work& work) noexcept {
  Status status = check_first_stride(op, "ring.k", p.ring.k, kVector, kKernel);
  if (status.ok()) status = check_first_stride(op, "ring.delta", p.ring.delta, kVector, kKernel);
  if (!status.ok()) return status;
  const size_t bytes = replay_sizes(work, plan_grid(work, 1)).bytes();
  if (bytes <= kMaxSharedBytes) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: r, tokens = %lld, %lld need %lld bytes of shared memory, expected at "
                         "most %lld (CUDA replay kernel)",
                         op, static_cast<ll>(p.r), static_cast<ll>(p.rows.max_tokens),
                         static_cast<ll>(bytes), static_cast<ll>(kMaxSharedBytes));
}

Status check_step(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (!present(p.ring.k)) return left_to_others();
  Status status = check_key_size("recurrent_step", p);
  if (status.ok()) status = check_any_step(p, machine);
  return status.ok() ? check_entries("recurrent_step", p, work_of(p)) : status;
}

Status check_step_addresses(const DeltaRuleProblem& p) noexcept {
  const Status status = check_vector_addresses(p);
  return status.ok() ? check_entry_addresses("recurrent_step", p.ring) : status;
}

/// A tile is a CTA, the tiles of a key head are a cluster.
Status check_layer_tiles(const DeltaRuleProblem& p, const Work& work) noexcept {
  const int tiles = plan_grid(work, 1).ctas;
  if (tiles <= kMaxClusterCtas) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "layer_decode: r, V = %lld, %lld make %d tiles, expected at most %d (CUDA "
                         "replay kernel; a tile is 128 columns of a value head of a key head)",
                         static_cast<ll>(p.r), static_cast<ll>(p.V), tiles, kMaxClusterCtas);
}

Status no_vectors() noexcept {
  return Status::failure(Code::kUnsupported,
                         "layer_decode: state.initial = no vectors, expected K, V, slot stride and "
                         "address to be multiples of 4 numbers (CUDA replay kernel)");
}

Status check_layer(const LayerProblem& p, const Machine& machine) noexcept {
  if (!present(p.delta.ring.k)) return left_to_others();
  const Work work = work_of(p);
  Status status = check_key_size("layer_decode", p.delta);
  if (status.ok()) status = check_any_layer(p, machine, false);
  if (!status.ok()) return status;
  if (!check_vectors(p.delta).ok()) return no_vectors();
  status = check_layer_tiles(p.delta, work);
  return status.ok() ? check_entries("layer_decode", p.delta, work) : status;
}

Status check_layer_addresses(const LayerProblem& p) noexcept {
  if (!check_vector_addresses(p.delta).ok()) return no_vectors();
  return check_entry_addresses("layer_decode", p.delta.ring);
}

/// Whether cursors are 32 bits wide.
bool has_narrow_cursors(const sluice_replay_ring& ring) noexcept {
  return ring.position.dtype.bits == 32 && ring.checkpoint.dtype.bits == 32 &&
         (!present(ring.next_checkpoint) || ring.next_checkpoint.dtype.bits == 32);
}

ReplayModel model_of(const DeltaRuleProblem& p) noexcept {
  return {number_type(p.q.dtype), number_type(p.ring.k.dtype), p.state.initial.dtype.bits == 16};
}

/// Whether dtypes are those of an instance for models.
bool has_model_types(const DeltaRuleProblem& p) noexcept {
  const ReplayModel model = model_of(p);
  const Number state = model.packed ? model.tokens : Number::kFloat32;
  return model.tokens != Number::kFloat32 && number_type(p.o.dtype) == model.tokens &&
         number_type(p.state.initial.dtype) == state &&
         number_type(p.ring.delta.dtype) == model.entries &&
         (model.entries == Number::kFloat32 || model.entries == model.tokens);
}

/// Whether a step is as models have it: whole heads of 128 x 128 a CTA, [K,V], raw gates and beta
/// logits of the tokens' type, l2 norms, the delta rule, each sequence a batch entry.
Status check_model(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  const bool sizes = p.state.layout != SLUICE_STATE_VK && p.K == kMaxReplayK && p.V == kMaxReplayK;
  const bool rows = !present(p.rows.cu_seqlens) && p.head_map != SLUICE_HEAD_MAP_CYCLIC;
  if (!present(p.ring.k) || !sizes || !rows || !has_narrow_cursors(p.ring) || !has_model_types(p)) {
    return left_to_others();
  }
  const Number tokens = number_type(p.q.dtype);
  const bool gates = gate_form(p) == GateForm::kRaw && beta_form(p) == BetaForm::kLogit &&
                     number_type(p.gate.dtype) == tokens && number_type(p.beta.dtype) == tokens &&
                     p.qk_norm == SLUICE_QK_NORM_L2 && p.rule == SLUICE_RULE_GATED_DELTA;
  return gates ? check_step(p, machine) : left_to_others();
}

Status plan_model(const DeltaRuleProblem& p, const Machine& machine, const Environment&,
                  core::Plan* plan) noexcept {
  const StepPlan chosen = plan_work(p, work_of(p), machine.multiprocessors);
  // The instances have whole heads.
  if (chosen.grid.column_bits != kModelColumnBits) return left_to_others();
  plan->kernel = "cuda.recurrent_step.sm_90a.replay_model_k128";
  plan->keep(chosen);
  return ok_status();
}

constexpr const char* kSizes[] = {"k64", "k128"};
constexpr NameTable kStepNames("cuda.recurrent_step.sm_90a.replay_", kSizes);
constexpr NameTable kLayerNames("cuda.layer_decode.sm_90a.replay_", kSizes);

template <class Problem, const auto& kNames>
Status plan_any(const Problem& p, const Machine& machine, const Environment&,
                core::Plan* plan) noexcept {
  plan->kernel = kNames.at(delta_of(p).K > 64);
  plan->keep(plan_work(delta_of(p), work_of(p), machine.multiprocessors));
  return ok_status();
}

const void* kernel_for(int K, bool is_vk, bool layer, bool packed) noexcept {
  if (K == 64) return is_vk ? replay_k64_vk(layer, packed) : replay_k64_kv(layer, packed);
  return is_vk ? replay_k128_vk(layer, packed) : replay_k128_kv(layer, packed);
}

const void* model_kernel_for(const ReplayModel& model) noexcept {
  return model.tokens == Number::kBfloat16 ? replay_model_bf16(model) : replay_model_fp16(model);
}

/// Launches a kernel that is found by the parameters, which it takes.
template <class Problem, class Find>
void launch_plan(const Problem& problem, const core::Plan& plan, Launcher& launch,
                 const Find& find) noexcept {
  const DeltaRuleProblem& p = delta_of(problem);
  const auto chosen = plan.kept<StepPlan>();
  if (p.rows.N == 0) return;
  const Work work = work_of(problem);
  const ReplayParams params = lower_replay(p, lower_any(problem, chosen));
  launch(find(params), shape_of(p, work, chosen.grid, replay_sizes(work, chosen.grid).bytes()),
         params);
}

void launch_model(const DeltaRuleProblem& p, const core::Plan& plan, void*,
                  Launcher& launch) noexcept {
  launch_plan(p, plan, launch, [&](const ReplayParams&) { return model_kernel_for(model_of(p)); });
}

template <class Problem>
void launch_any(const Problem& problem, const core::Plan& plan, void*, Launcher& launch) noexcept {
  const DeltaRuleProblem& p = delta_of(problem);
  launch_plan(problem, plan, launch, [&](const ReplayParams& params) {
    return kernel_for(p.K <= 64 ? 64 : kMaxReplayK, p.state.layout == SLUICE_STATE_VK,
                      params.step.layer, params.step.packed);
  });
}

int load_models(const Machine& machine) noexcept {
  if (!machine.is_hopper()) return 0;
  KernelLoader load;
  for (const Number tokens : {Number::kBfloat16, Number::kFloat16}) {
    for (const Number entries : {Number::kFloat32, tokens}) {
      for (const bool packed : {false, true}) load(model_kernel_for({tokens, entries, packed}));
    }
  }
  return load.error();
}

int load(const Machine& machine) noexcept {
  if (!machine.is_hopper()) return 0;
  KernelLoader load;
  for (const int K : {64, kMaxReplayK}) {
    for (int form = 0; form < 8; ++form) {
      load(kernel_for(K, form / 4 != 0, form / 2 % 2 != 0, form % 2 != 0));
    }
  }
  return load.error();
}

}  // namespace

const Kernel<DeltaRuleProblem> kReplayModel{
    "recurrent_step.replay_model",
    "a replay ring, heads of 128 x 128, [K,V], 16-bit tokens and gates, raw gates, beta "
    "logits, l2 norms; 9.0",
    Tier::kFast,
    check_model,
    check_step_addresses,
    plan_model,
    launch_model,
    load_models};

const Kernel<DeltaRuleProblem> kReplayStep{
    "recurrent_step.replay",
    "a replay ring, K <= 128, V <= 1024, multiples of 4; entries and states aligned to 4 "
    "numbers; 9.0",
    Tier::kFast,
    check_step,
    check_step_addresses,
    plan_any<DeltaRuleProblem, kStepNames>,
    launch_any,
    load};

const Kernel<LayerProblem> kReplayLayer{
    "layer_decode.replay",
    "a replay ring, K <= 128, at most 8 tiles of 128 columns a key head; otherwise as "
    "recurrent_step.replay",
    Tier::kFast,
    check_layer,
    check_layer_addresses,
    plan_any<LayerProblem, kLayerNames>,
    launch_any,
    nullptr};

}  // namespace sluice::cuda::decode
