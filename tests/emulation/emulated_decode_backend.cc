// Runs recurrent_step and layer_decode of the CUDA backend on the CPU: their host code as it is,
// the decode kernel by the emulator. What that kernel does not take is left to the float64
// reference, under another name.
// SPDX-License-Identifier: Apache-2.0
#include "emulated_decode_backend.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "core/backend.hpp"
#include "cuda/chunk_forward/rows.h"
#include "cuda/kernels/decode/instances.h"
#include "cuda/kernels/decode/kernel.cuh"
#include "cuda/kernels/decode/replay/kernel.cuh"
#include "cuda/kernels/decode/single/kernel.cuh"
#include "cuda/machine.h"
#include "emulated_launcher.hpp"
#include "emulated_operator.hpp"

namespace sluice::cuda::chunk_forward {
/// Of the emulator's single CTAs, of which there are none here.
alignas(1024) uint8_t dynamic_shared[emulation::kSharedBytes];
}  // namespace sluice::cuda::chunk_forward

namespace sluice::cuda {

DecodeEmulation decode_emulation;

Machine machine_of(int device) noexcept {
  return {device, kHopperCapability, decode_emulation.multiprocessors, {}};
}
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace decode {
namespace {

/// A table of slots that holds others, or nonsense, for a thread until it has waited for earlier
/// launches. BOUND: threads read their slots ahead of their first barrier.
class LateSlots {
 public:
  LateSlots(const void* data, int64_t stride_bytes, bool is_64bit, int64_t sequences)
      : data_(static_cast<char*>(const_cast<void*>(data))),
        stride_(stride_bytes),
        width_(is_64bit ? 8 : 4) {
    if (data == nullptr || !decode_emulation.late_slots) return;
    entries_.resize(static_cast<size_t>(sequences));
    for (size_t n = 0; n < entries_.size(); ++n) std::memcpy(&entries_[n], at(n), width_);
    emulation::earlier_launches = [this] { end(); };
  }
  LateSlots(const LateSlots&) = delete;
  LateSlots& operator=(const LateSlots&) = delete;
  ~LateSlots() {
    end();
    emulation::earlier_launches = nullptr;
  }
  /// Ahead of a thread.
  void begin() {
    const int64_t wrong[] = {-5, int64_t{1} << 30, 1, 0};
    for (size_t n = 0; n < entries_.size(); ++n) std::memcpy(at(n), &wrong[n % 4], width_);
  }

 private:
  char* at(size_t n) { return data_ + static_cast<int64_t>(n) * stride_; }
  void end() {
    for (size_t n = 0; n < entries_.size(); ++n) std::memcpy(at(n), &entries_[n], width_);
  }
  char* data_;
  int64_t stride_;
  size_t width_;
  std::vector<int64_t> entries_;
};

LateSlots late_slots_of(const DecodeParams& p, const emulation::Grid& grid) {
  const IndexVector& slots = p.state.read_slots.rows;
  const int64_t sequences = grid.ctas / (grid.x * grid.y);
  return {slots.data, slots.stride * (slots.is_64bit ? 8 : 4), slots.is_64bit, sequences};
}

/// Of a replay ring the kernels read no slot ahead of earlier launches' end.
LateSlots late_slots_of(const ReplayParams&, const emulation::Grid&) {
  return {nullptr, 0, false, 0};
}

LateSlots late_slots_of(const SingleCommon& p, const emulation::Grid&) {
  const SingleSlots& slots = p.read_slots;
  return {slots.data, slots.sequence_bytes, slots.is_64bit, p.heads / (p.r * p.H)};
}

/// Makes an instance known to launches.
template <class Params>
const void* emulated(const void* instance) {
  const auto kernel = reinterpret_cast<void (*)(Params)>(const_cast<void*>(instance));
  return emulation::known(
      kernel, [](emulation::Grid grid, const std::function<void()>& thread, const Params& params) {
        grid.resident = decode_emulation.resident;
        LateSlots late = late_slots_of(params, grid);
        ++decode_emulation.launches;
        decode_emulation.ctas_of_unit = static_cast<int>(grid.x);
        decode_emulation.trouble = emulation::run_grid(grid, decode_emulation.seed, [&] {
          late.begin();
          thread();
        });
        return decode_emulation.trouble.empty() ? 0 : 1;
      });
}

template <class Io, bool kKeyGates, bool kVk>
SingleInstance single(const SingleKind& kind) noexcept {
  const SingleInstance instance = single_instance<Io, kKeyGates, kVk>(kind);
  using Step = std::conditional_t<kKeyGates, SingleKeyParams, SingleParams>;
  if (kind.cut == SingleCut::kLayer) {
    emulated<std::conditional_t<kKeyGates, SingleKeyLayerParams, SingleLayerParams>>(
        instance.kernel);
  } else if (kind.packed) {
    emulated<SinglePacked<Step>>(instance.kernel);
  } else {
    emulated<Step>(instance.kernel);
  }
  return instance;
}

template <int kK, bool kVk>
const void* any(AnyForm form) noexcept {
  return emulated<DecodeParams>(instance_of<kK, kVk>(form));
}

template <int kK, bool kVk>
const void* replay(bool layer, bool packed) noexcept {
  return emulated<ReplayParams>(replay_instance<kK, kVk>(layer, packed));
}

}  // namespace

const void* k64_kv(AnyForm form) noexcept { return any<64, false>(form); }
const void* k64_vk(AnyForm form) noexcept { return any<64, true>(form); }
const void* k128_kv(AnyForm form) noexcept { return any<128, false>(form); }
const void* k128_vk(AnyForm form) noexcept { return any<128, true>(form); }
const void* k256_kv(AnyForm form) noexcept { return any<256, false>(form); }
const void* k256_vk(AnyForm form) noexcept { return any<256, true>(form); }

const void* replay_k64_kv(bool layer, bool packed) noexcept {
  return replay<64, false>(layer, packed);
}
const void* replay_k64_vk(bool layer, bool packed) noexcept {
  return replay<64, true>(layer, packed);
}
const void* replay_k128_kv(bool layer, bool packed) noexcept {
  return replay<128, false>(layer, packed);
}
const void* replay_k128_vk(bool layer, bool packed) noexcept {
  return replay<128, true>(layer, packed);
}
const void* replay_model_bf16(const ReplayModel& model) noexcept {
  return emulated<ReplayParams>(replay_model_instance<__nv_bfloat16>(model));
}
const void* replay_model_fp16(const ReplayModel& model) noexcept {
  return emulated<ReplayParams>(replay_model_instance<__half>(model));
}

SingleInstance single_bf16(const SingleKind& kind) noexcept {
  return single<__nv_bfloat16, false, false>(kind);
}
SingleInstance single_fp16(const SingleKind& kind) noexcept {
  return single<__half, false, false>(kind);
}
SingleInstance single_bf16_vk(const SingleKind& kind) noexcept {
  return single<__nv_bfloat16, false, true>(kind);
}
SingleInstance single_fp16_vk(const SingleKind& kind) noexcept {
  return single<__half, false, true>(kind);
}
SingleInstance single_keys_bf16(const SingleKind& kind) noexcept {
  return single<__nv_bfloat16, true, false>(kind);
}
SingleInstance single_keys_fp16(const SingleKind& kind) noexcept {
  return single<__half, true, false>(kind);
}
SingleInstance single_keys_bf16_vk(const SingleKind& kind) noexcept {
  return single<__nv_bfloat16, true, true>(kind);
}
SingleInstance single_keys_fp16_vk(const SingleKind& kind) noexcept {
  return single<__half, true, true>(kind);
}

}  // namespace decode

namespace {

/// Runs the reference in place of a kernel, with a workspace of its own.
template <class Problem>
void run_reference(const core::Operator<Problem>& reference, const Problem& problem,
                   Launcher& launcher) {
  core::Plan plan;
  Status status = reference.plan(problem, core::PlanFor::kCall, &plan);
  const size_t bytes = (plan.workspace_bytes + 511) / 256 * 256;
  void* const scratch = std::aligned_alloc(256, bytes);
  if (status.ok()) status = reference.run(problem, plan, {scratch, bytes}, launcher.stream());
  std::free(scratch);
  launcher.note(status.ok() ? 0 : 1);
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "the decode kernel, emulated";
  backend.requirement = "nothing";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = []() noexcept { return true; };
  backend.recurrent_step = emulated_operator<recurrent_step_catalogue>();
  backend.layer_decode = emulated_operator<layer_decode_catalogue>();
  return backend;
}

}  // namespace

// In place of the generic kernel: the reference.

Status accepts_generic(const core::DeltaRuleProblem&, const Machine&) noexcept {
  return ok_status();
}

Status plan_generic(const core::DeltaRuleProblem&, const Machine&, const Environment&,
                    core::Plan* plan) noexcept {
  plan->kernel = "reference";
  return ok_status();
}

void launch_generic(const core::DeltaRuleProblem& problem, const core::Plan&, void*,
                    Launcher& launcher) noexcept {
  run_reference(ref::recurrent_backend().recurrent_step, problem, launcher);
}

int load_generic(const Machine&) noexcept { return 0; }

// Likewise in place of layer_prefill's kernels.

Catalogue<core::LayerProblem> layer_prefill_catalogue() noexcept {
  using core::LayerProblem;
  static const Kernel<LayerProblem> rows[] = {
      {"layer_prefill", "anything", Tier::kAny,
       [](const LayerProblem&, const Machine&) noexcept { return ok_status(); }, nullptr,
       [](const LayerProblem&, const Machine&, const Environment&, core::Plan* plan) noexcept {
         plan->kernel = "cuda.layer_decode.generic";
         return ok_status();
       },
       [](const LayerProblem& problem, const core::Plan&, void*, Launcher& launcher) noexcept {
         run_reference(ref::recurrent_backend().layer_decode, problem, launcher);
       },
       nullptr}};
  return rows;
}

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
