// Says which steps and layers the kernel for any case takes, and plans and launches them.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode/lower.h"
#include "cuda/decode/rows.h"
#include "cuda/kernels/decode/instances.h"
#include "cuda/lower_views.h"

namespace sluice::cuda::decode {
namespace {

using core::present, core::Tensor;
using ll = long long;

/// Lanes move four numbers at a time.
constexpr int64_t kVector = 4;
constexpr int64_t kMaxV = 1024, kMaxCtas = 1 << 16, kMaxTiles = 1 << 12;

constexpr const char* kKernel = "CUDA decode kernel";

Status check_sizes(const char* op, const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_hopper(op, machine, kKernel); !s.ok()) return s;
  if (p.K <= kMaxK && p.V <= kMaxV) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: K, V = %lld, %lld, expected at most %lld and %lld (CUDA decode "
                         "kernel)",
                         op, static_cast<ll>(p.K), static_cast<ll>(p.V), static_cast<ll>(kMaxK),
                         static_cast<ll>(kMaxV));
}

/// Whether some grid's shared memory fits, and its dimensions are legal.
Status check_grid(const char* op, const DeltaRuleProblem& p, const Work& work) noexcept {
  constexpr int64_t kColumns = 1 << kMinColumnBits;
  const int64_t tiles = p.r * ((p.V + kColumns - 1) / kColumns);
  if (tiles >= kMaxTiles || p.rows.N >= kMaxCtas || p.H >= kMaxCtas) {
    return Status::failure(Code::kUnsupported,
                           "%s: N, H, tiles = %lld, %lld, %lld, expected below 2^16, 2^16 and 2^12 "
                           "(CUDA decode kernel; a tile is 32 columns of a value head of a key "
                           "head)",
                           op, static_cast<ll>(p.rows.N), static_cast<ll>(p.H),
                           static_cast<ll>(tiles));
  }
  const size_t bytes = shared_bytes(work, plan_grid(work, 1));
  if (bytes <= kMaxSharedBytes) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "%s: r, V, tokens = %lld, %lld, %lld need %lld bytes of shared memory, "
                         "expected at most %lld (CUDA decode kernel)",
                         op, static_cast<ll>(p.r), static_cast<ll>(p.V),
                         static_cast<ll>(p.rows.max_tokens), static_cast<ll>(bytes),
                         static_cast<ll>(kMaxSharedBytes));
}

/// Gates of heads without a bound, and convolution states of q, k and v that lie alike.
Status check_layer_form(const LayerProblem& p) noexcept {
  if (gate_form(p.delta) != device::GateForm::kRaw) {
    return Status::failure(Code::kUnsupported,
                           "layer_decode: a is key-wise or bounded, expected raw gates of heads "
                           "(CUDA decode kernel)");
  }
  if (has_like_pools(p)) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "layer_decode: k_conv_* and v_conv_* strides differ from those of q's "
                         "states, expected the same (CUDA decode kernel)");
}

/// 0, 1, 2: K up to 64, 128, 256.
int size_of(int64_t K) noexcept { return K <= 64 ? 0 : (K <= 128 ? 1 : 2); }

using GetInstance = const void* (*)(AnyForm form) noexcept;
/// By K and layout, [K,V] first.
constexpr GetInstance kInstances[3][2] = {{k64_kv, k64_vk}, {k128_kv, k128_vk}, {k256_kv, k256_vk}};

/// Which instance runs a step, or a layer.
AnyForm form_of(const DeltaRuleProblem& p) noexcept {
  if (present(p.key_gate)) return AnyForm::kKeyGates;
  return is_packed(p) ? AnyForm::kPacked : AnyForm::kStep;
}
AnyForm form_of(const LayerProblem&) noexcept { return AnyForm::kLayer; }

constexpr const char* kSizes[] = {"k64", "k128", "k256"};
constexpr const char* kForms[] = {"", ".packed", ".key_gates"};
constexpr NameTable kStepNames("cuda.recurrent_step.sm_90a.", kSizes, kForms);
constexpr NameTable kLayerNames("cuda.layer_decode.sm_90a.", kSizes);

core::KernelName name_of(const DeltaRuleProblem& p) noexcept {
  return kStepNames.at(size_of(p.K), form_of(p));
}
core::KernelName name_of(const LayerProblem& p) noexcept {
  return kLayerNames.at(size_of(p.delta.K));
}

template <class Problem>
Status plan_any(const Problem& p, const Machine& machine, const Environment&,
                core::Plan* plan) noexcept {
  plan->kernel = name_of(p);
  plan->keep(plan_work(delta_of(p), work_of(p), machine.multiprocessors));
  return ok_status();
}

Status plan_by_element(const LayerProblem& p, const Machine& machine, const Environment&,
                       core::Plan* plan) noexcept {
  plan->kernel = "cuda.layer_decode.sm_90a.by_element";
  plan->keep(plan_work(p.delta, work_of(p, true), machine.multiprocessors));
  return ok_status();
}

template <class Problem>
void launch_any(const Problem& problem, const core::Plan& plan, void*, Launcher& launch) noexcept {
  const DeltaRuleProblem& p = delta_of(problem);
  const auto chosen = plan.kept<StepPlan>();
  if (p.rows.N == 0) return;
  Work work = work_of(problem);
  work.by_element = chosen.by_element;
  const int size = size_of(rounded_k(work.K, work.by_element));
  const bool is_vk = p.state.layout == SLUICE_STATE_VK;
  launch(kInstances[size][is_vk](form_of(problem)),
         shape_of(p, work, chosen.grid, shared_bytes(work, chosen.grid)),
         lower_any(problem, chosen));
}

Status check_step(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  return present(p.ring.k) ? left_to_others() : check_any_step(p, machine);
}

Status check_layer(const LayerProblem& p, const Machine& machine) noexcept {
  if (present(p.delta.ring.k) || !check_vectors(p.delta).ok()) return left_to_others();
  return check_any_layer(p, machine, false);
}

Status check_layer_addresses(const LayerProblem& p) noexcept {
  return check_vector_addresses(p.delta);
}

Status check_layer_by_element(const LayerProblem& p, const Machine& machine) noexcept {
  return present(p.delta.ring.k) ? left_to_others() : check_any_layer(p, machine, true);
}

int load(const Machine& machine) noexcept {
  if (!machine.is_hopper()) return 0;
  KernelLoader load;
  for (const auto& of_k : kInstances) {
    for (const GetInstance get : of_k) {
      for (int form = 0; form < kAnyForms; ++form) load(get(static_cast<AnyForm>(form)));
    }
  }
  return load.error();
}

}  // namespace

Status check_vectors(const DeltaRuleProblem& p) noexcept {
  if (p.K % kVector != 0 || p.V % kVector != 0) {
    return Status::failure(
        Code::kUnsupported,
        "recurrent_step: K, V = %lld, %lld, expected multiples of 4 (CUDA decode kernel)",
        static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  const auto check = [](const char* name, const Tensor& pool) {
    return check_first_stride("recurrent_step", name, pool, kVector, kKernel);
  };
  const Status status = check("state.initial", p.state.initial);
  return status.ok() ? check("state.final", p.state.final) : status;
}

Status check_any_step(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  Status status = check_sizes("recurrent_step", p, machine);
  if (status.ok()) status = check_vectors(p);
  return status.ok() ? check_grid("recurrent_step", p, work_of(p)) : status;
}

Status check_any_layer(const LayerProblem& p, const Machine& machine, bool by_element) noexcept {
  Status status = check_sizes("layer_decode", p.delta, machine);
  if (status.ok()) status = check_layer_form(p);
  if (!status.ok()) return status;
  return check_grid("layer_decode", p.delta, work_of(p, by_element));
}

Status check_vector_addresses(const DeltaRuleProblem& p) noexcept {
  const auto check = [](const char* name, const Tensor& pool) {
    return check_address("recurrent_step", name, pool, kVector * pool.dtype.bits / 8, kKernel);
  };
  const Status status = check("state.initial", p.state.initial);
  return status.ok() ? check("state.final", p.state.final) : status;
}

const Kernel<DeltaRuleProblem> kAnyStep{
    "recurrent_step.any",
    "K <= 256, V <= 1024, multiples of 4; states aligned to 4 numbers; 9.0",
    Tier::kFast,
    check_step,
    check_vector_addresses,
    plan_any,
    launch_any,
    load};

const Kernel<LayerProblem> kAnyLayer{
    "layer_decode.any",
    "K <= 256, V <= 1024, multiples of 4; states aligned to 4 numbers; gates of heads without "
    "a bound; 9.0",
    Tier::kFast,
    check_layer,
    check_layer_addresses,
    plan_any,
    launch_any,
    nullptr};

const Kernel<LayerProblem> kLayerByElement{
    "layer_decode.by_element",
    "K <= 256, V <= 1024, states of any alignment; gates of heads without a bound; 9.0",
    Tier::kFast,
    check_layer_by_element,
    nullptr,
    plan_by_element,
    launch_any,
    nullptr};

}  // namespace sluice::cuda::decode
