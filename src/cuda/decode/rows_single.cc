// Says which steps and layers the kernels of single tokens on whole heads take, and plans and
// launches them.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cuda/decode/lower.h"
#include "cuda/decode/rows.h"
#include "cuda/decode/single_views.h"
#include "cuda/kernels/decode/instances.h"

namespace sluice::cuda::decode {
namespace {

using core::present, core::Tensor;

/// Bytes: eight numbers of q, k and v are one access.
constexpr int64_t kRowAlignment = 16;
/// Four numbers of a state are one access.
constexpr int64_t kVector = 4;

/// Whether slots of a pool are 32-bit numbers, and vectors whole; an absent pool is the other one.
bool has_slots(const Tensor& pool) noexcept {
  if (!present(pool)) return true;
  const int64_t slot = pool.shape[0] <= 1 ? 0 : pool.stride[0];
  return pool.shape[0] > 0 && pool.shape[0] < INT32_MAX && slot >= 0 &&
         slot * bytes_of(pool) <= INT32_MAX && slot % kVector == 0;
}

/// Likewise their addresses.
bool has_aligned_slots(const DeltaRuleProblem& p) noexcept {
  const auto aligned = [](const Tensor& pool) {
    return !present(pool) || is_aligned(pool.data, kVector * bytes_of(pool));
  };
  return aligned(p.state.initial) && aligned(p.state.final);
}

bool has_pools(const DeltaRuleProblem& p) noexcept {
  const Tensor &initial = p.state.initial, &final = p.state.final;
  if (!present(initial) && !present(final)) return false;
  if (present(initial) && present(final) &&
      number_type(initial.dtype) != number_type(final.dtype)) {
    return false;
  }
  return has_slots(initial) && has_slots(final) && p.state.pad_below >= INT32_MIN &&
         p.state.pad_below <= INT32_MAX;
}

/// Whether sizes, states, slots and gates are what steps and layers of single tokens take.
bool is_single(const DeltaRuleProblem& p) noexcept {
  const bool sizes = p.K == kSingleSize && p.V == kSingleSize && p.rows.max_tokens == 1 &&
                     !present(p.num_accepted) && !present(p.ring.k) &&
                     (present(p.key_gate) || p.gate_space != SLUICE_GATE_RAW_BOUNDED);
  constexpr int64_t kMaxGrid = 1 << 16, kMaxHeads = 1 << 10;
  if (!sizes || p.rows.N >= kMaxGrid || p.H >= kMaxGrid || p.r >= kMaxHeads) return false;
  for (const Tensor* t : {&p.gate, &p.key_gate, &p.beta, &p.A_log, &p.dt_bias, &p.state.read_slots,
                          &p.state.write_slots, &p.state.has_initial_state, &p.rows.cu_seqlens}) {
    if (present(*t) && !has_strides(*t)) return false;
  }
  return has_pools(p);
}

SingleInstance instance_of(const SingleKind& kind) noexcept {
  using Instances = SingleInstance (*)(const SingleKind&) noexcept;
  constexpr Instances kInstances[2][2][2] = {
      {{single_fp16, single_fp16_vk}, {single_bf16, single_bf16_vk}},
      {{single_keys_fp16, single_keys_fp16_vk}, {single_keys_bf16, single_keys_bf16_vk}}};
  return kInstances[kind.key_gates][kind.tokens == Number::kBfloat16][kind.vk](kind);
}

bool is_vk(const DeltaRuleProblem& p) noexcept { return p.state.layout == SLUICE_STATE_VK; }

bool is_packed(const DeltaRuleProblem& p) noexcept { return present(p.rows.cu_seqlens); }

/// Packed tokens as a batch of as many entries of one token.
DeltaRuleProblem as_batch(const DeltaRuleProblem& p) noexcept {
  DeltaRuleProblem out = p;
  for (Tensor* t : {&out.q, &out.k, &out.v, &out.o, &out.gate, &out.key_gate, &out.beta}) {
    if (!present(*t)) continue;
    std::swap(t->shape[0], t->shape[1]);
    std::swap(t->stride[0], t->stride[1]);
  }
  return out;
}

Status check_batch(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (!machine.is_hopper() || !is_single(p)) return left_to_others();
  const Number tokens = number_type(p.q.dtype);
  for (const Tensor* t : {&p.q, &p.k, &p.v, &p.o}) {
    if (!has_rows(*t, kRowAlignment) || number_type(t->dtype) != tokens) return left_to_others();
  }
  return has_single(state_number(p), tokens) ? ok_status() : left_to_others();
}

Status check_step(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (!is_packed(p)) return check_batch(p, machine);
  const bool takes = is_vk(p) && p.rows.T > 0 && p.rows.T <= INT32_MAX;
  return takes ? check_batch(as_batch(p), machine) : left_to_others();
}

Status check_step_addresses(const DeltaRuleProblem& p) noexcept {
  bool aligned = has_aligned_slots(p);
  for (const Tensor* t : {&p.q, &p.k, &p.v, &p.o}) {
    aligned = aligned && is_aligned(t->data, kRowAlignment);
  }
  return aligned ? ok_status() : left_to_others();
}

constexpr const char* kGates[] = {"", ".key_gates"};
constexpr const char* kForms[] = {".narrow",    ".wide",      ".many",     ".stream",
                                  ".vk.narrow", ".vk.stream", ".vk.packed"};
constexpr NameTable kStepNames("cuda.recurrent_step.sm_90a.single_k128", kGates, kForms);
constexpr NameTable kLayerNames("cuda.layer_decode.sm_90a.single_k128", kGates);

/// Of kForms.
int form_of(const DeltaRuleProblem& p, SingleCut cut) noexcept {
  if (is_packed(p)) return 6;
  if (is_vk(p)) return cut == SingleCut::kStream ? 5 : 4;
  // In float32 many CTAs run the same kernel as whole heads.
  if (cut == SingleCut::kMany && state_number(p) == Number::kFloat32) cut = SingleCut::kWide;
  return static_cast<int>(cut);
}

Status plan_step(const DeltaRuleProblem& p, const Machine& machine, const Environment&,
                 core::Plan* plan) noexcept {
  const int64_t heads = p.rows.N * p.HV;
  const SinglePlan chosen =
      is_packed(p) ? plan_single_packed(heads, machine.multiprocessors)
                   : plan_single(heads, state_number(p), is_vk(p), machine.multiprocessors);
  plan->kernel = kStepNames.at(present(p.key_gate), form_of(p, chosen.cut));
  plan->keep(chosen);
  return ok_status();
}

LaunchShape shape_of(const SingleInstance& instance, const GridSize& grid,
                     uint32_t cluster = 1) noexcept {
  return {grid, instance.threads, instance.shared_bytes, cluster};
}

template <class Params>
void launch_packed(const DeltaRuleProblem& p, const SingleInstance& instance,
                   const LaunchShape& shape, const Params& params, Launcher& launch) noexcept {
  SinglePacked<Params> packed{params, {}, static_cast<uint32_t>(p.rows.T)};
  const Tensor& offsets = p.rows.cu_seqlens;
  packed.offsets = {static_cast<const char*>(offsets.data), stride_of(offsets, 0),
                    offsets.dtype.bits == 64};
  launch(instance.kernel, shape, packed);
}

void launch_step(const DeltaRuleProblem& p, const core::Plan& plan, void*,
                 Launcher& launch) noexcept {
  if (p.rows.N == 0) return;
  const auto chosen = plan.kept<SinglePlan>();
  const bool key_gates = present(p.key_gate), packed = is_packed(p);
  const SingleKeyParams params = lower_single_step(packed ? as_batch(p) : p, chosen);
  const SingleInstance instance = instance_of(
      {state_number(p), number_type(p.q.dtype), chosen.cut, key_gates, is_vk(p), packed});
  GridSize grid{params.r * instance.ctas_of_head, params.H, static_cast<unsigned>(p.rows.N)};
  if (chosen.cut == SingleCut::kStream) grid = {params.ctas};
  const LaunchShape shape = shape_of(instance, grid);
  const auto& scalar = static_cast<const SingleParams&>(params);
  if (packed) {
    if (key_gates) return launch_packed(p, instance, shape, params, launch);
    return launch_packed(p, instance, shape, scalar, launch);
  }
  if (key_gates) return launch(instance.kernel, shape, params);
  launch(instance.kernel, shape, scalar);
}

Status check_layer(const LayerProblem& p, const Machine& machine) noexcept {
  const DeltaRuleProblem& d = p.delta;
  const bool takes =
      machine.is_hopper() && is_single(d) && !is_vk(d) && !is_packed(d) && d.r <= kMaxSingleHeads &&
      d.qk_norm == SLUICE_QK_NORM_L2 && d.rule == SLUICE_RULE_GATED_DELTA &&
      (present(d.key_gate) || gate_form(d) == SingleLayerParams::gate_form) &&
      beta_form(d) == SingleLayerParams::beta_form &&
      has_single(state_number(d), number_type(p.conv[0].x.dtype)) && has_single_layer_parts(p);
  return takes ? ok_status() : left_to_others();
}

Status check_layer_addresses(const LayerProblem& p) noexcept {
  const bool aligned = has_aligned_slots(p.delta) && has_aligned_layer_parts(p);
  return aligned ? ok_status() : left_to_others();
}

Status plan_layer(const LayerProblem& p, const Machine& machine, const Environment&,
                  core::Plan* plan) noexcept {
  plan->kernel = kLayerNames.at(present(p.delta.key_gate));
  plan->keep(plan_single_layer(p.delta.rows.N * p.delta.HV, machine.multiprocessors));
  return ok_status();
}

void launch_layer(const LayerProblem& p, const core::Plan& plan, void*, Launcher& launch) noexcept {
  if (p.delta.rows.N == 0) return;
  const SingleKeyLayerParams params = lower_single_layer(p, plan.kept<SinglePlan>());
  const bool key_gates = present(p.delta.key_gate);
  const SingleInstance instance =
      instance_of({state_number(p.delta), number_type(p.conv[0].x.dtype), SingleCut::kLayer,
                   key_gates, false, false});
  const LaunchShape shape =
      shape_of(instance, {params.r, params.H, static_cast<unsigned>(p.delta.rows.N)}, params.r);
  if (key_gates) {
    launch(instance.kernel, shape, params);
  } else {
    launch(instance.kernel, shape, static_cast<const SingleLayerParams&>(params));
  }
}

int load_instance(const SingleKind& kind, int device) noexcept {
  const SingleInstance instance = instance_of(kind);
  if (instance.kernel == nullptr) return 0;
  const int error = load_kernel(instance.kernel);
  return error != 0 ? error : grant_shared(instance.kernel, instance.shared_bytes, device);
}

int load(const Machine& machine) noexcept {
  constexpr struct {
    bool vk, packed;
  } kLayouts[] = {{false, false}, {true, false}, {true, true}};
  if (!machine.is_hopper()) return 0;
  for (const Number tokens : {Number::kBfloat16, Number::kFloat16}) {
    for (const Number state : {Number::kFloat32, tokens}) {
      for (const SingleCut cut : {SingleCut::kNarrow, SingleCut::kWide, SingleCut::kMany,
                                  SingleCut::kStream, SingleCut::kLayer}) {
        for (const bool key_gates : {false, true}) {
          for (const auto [vk, packed] : kLayouts) {
            const SingleKind kind{state, tokens, cut, key_gates, vk, packed};
            const int error = load_instance(kind, machine.device);
            if (error != 0) return error;
          }
        }
      }
    }
  }
  return 0;
}

}  // namespace

const Kernel<DeltaRuleProblem> kSingleStep{
    "recurrent_step.single",
    "one token, heads of 128 x 128, 16-bit tokens of 16-byte rows, packed ones with states of "
    "[V,K], gates of heads or of keys; 9.0",
    Tier::kFast,
    check_step,
    check_step_addresses,
    plan_step,
    launch_step,
    load};

const Kernel<LayerProblem> kSingleLayer{
    "layer_decode.single",
    "one token, heads of 128 x 128, [K,V], convolutions of 4 inputs in whole words, raw "
    "gates of heads or of keys, beta logits, l2 norms; 9.0",
    Tier::kFast,
    check_layer,
    check_layer_addresses,
    plan_layer,
    launch_layer,
    nullptr};

}  // namespace sluice::cuda::decode
