// recurrent_step and layer_decode of the CUDA backend on the CPU: their host code as it is, the
// decode kernel by the emulator. What that kernel does not take is left to the float64 reference,
// under another name.
// SPDX-License-Identifier: Apache-2.0
#include "emulated_decode_backend.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/backend.hpp"
#include "cuda/decode.h"
#include "cuda/delta_rule.h"
#include "cuda/gpu.h"
#include "cuda/kernels/decode/kernel.cuh"
#include "cuda/kernels/decode/launch.h"
#include "cuda/kernels/decode/plan_grid.hpp"
#include "cuda/kernels/decode/ring_launch.h"
#include "cuda/kernels/decode/ring_model.cuh"
#include "cuda/kernels/decode/single.cuh"
#include "cuda/kernels/decode/single_launch.h"
#include "cuda/kernels/decode/single_layer.cuh"
#include "cuda/kernels/decode/single_stream.cuh"
#include "cuda/layer_prefill.h"

namespace sluice::cuda::chunk_forward {
/// Of the emulator's single CTAs, of which there are none here.
alignas(1024) uint8_t dynamic_shared[emulation::kSharedBytes];
}  // namespace sluice::cuda::chunk_forward

namespace sluice::cuda {

DecodeEmulation decode_emulation;

int compute_capability(int) noexcept { return 90; }
int multiprocessors(int) noexcept { return decode_emulation.multiprocessors; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;
const char* wished_kernel() noexcept { return "auto"; }

namespace decode {
namespace {

using Kernel = void (*)(DecodeParams);

template <bool kVk, bool kLayer, bool kPacked>
Kernel kernel_for(int K) {
  if (K == 64) return decode_kernel<Config<64, kVk, kLayer, kPacked>>;
  return K == 128 ? decode_kernel<Config<128, kVk, kLayer, kPacked>>
                  : decode_kernel<Config<256, kVk, kLayer, kPacked>>;
}

Kernel kernel_for(int K, bool is_vk, bool layer, bool packed) {
  if (packed) return kernel_for<false, false, true>(K);
  if (layer) return is_vk ? kernel_for<true, true, false>(K) : kernel_for<false, true, false>(K);
  return is_vk ? kernel_for<true, false, false>(K) : kernel_for<false, false, false>(K);
}

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

using RingKernel = void (*)(RingParams);

template <bool kVk, bool kLayer>
RingKernel ring_kernel_for(int K, bool packed) {
  if (packed) {
    return K == 64 ? ring_kernel<Config<64, kVk, kLayer, true>>
                   : ring_kernel<Config<128, kVk, kLayer, true>>;
  }
  return K == 64 ? ring_kernel<Config<64, kVk, kLayer>> : ring_kernel<Config<128, kVk, kLayer>>;
}

RingKernel ring_kernel_for(int K, bool is_vk, const RingParams& params) {
  const DecodeParams& step = params.step;
  decode_emulation.ring_model = fits_ring_model(params, is_vk);
  if (decode_emulation.ring_model) {
    const RingKind kind = ring_kind(params);
    const void* const kernel = kind.tokens == Number::kBfloat16
                                   ? ring_model_instance<__nv_bfloat16>(kind)
                                   : ring_model_instance<__half>(kind);
    return reinterpret_cast<RingKernel>(const_cast<void*>(kernel));
  }
  if (step.layer) {
    return is_vk ? ring_kernel_for<true, true>(K, step.packed)
                 : ring_kernel_for<false, true>(K, step.packed);
  }
  return is_vk ? ring_kernel_for<true, false>(K, step.packed)
               : ring_kernel_for<false, false>(K, step.packed);
}

}  // namespace

int launch(const DecodeParams& params, int64_t sequences, bool is_vk, bool layer, void*) noexcept {
  const int K = rounded_k(params.K, params.by_element);
  const StageSizes sizes{K, params.rows.max_tokens, params.r, params.grid, layer};
  emulation::Grid grid{};
  grid.ctas = static_cast<unsigned>(sequences * params.H * params.grid.ctas);
  grid.threads = static_cast<unsigned>(32 * warps_of(K));
  grid.cluster = layer ? static_cast<unsigned>(params.grid.ctas) : 1;
  grid.resident = decode_emulation.resident;
  grid.shared_bytes = sizes.bytes();
  grid.x = static_cast<unsigned>(params.grid.ctas), grid.y = static_cast<unsigned>(params.H);
  const Kernel kernel = kernel_for(K, is_vk, layer, params.packed);
  const IndexVector& slots = params.state.read_slots.rows;
  LateSlots late(slots.data, slots.stride * (slots.is_64bit ? 8 : 4), slots.is_64bit, sequences);
  ++decode_emulation.launches;
  decode_emulation.ctas_of_unit = params.grid.ctas;
  decode_emulation.trouble = emulation::run_grid(grid, decode_emulation.seed, [&] {
    late.begin();
    kernel(params);
  });
  return decode_emulation.trouble.empty() ? 0 : 1;
}

int launch_ring(const RingParams& params, int64_t sequences, bool is_vk, void*) noexcept {
  const RingSizes sizes = ring_sizes(params);
  emulation::Grid grid{};
  grid.ctas = static_cast<unsigned>(sequences * params.step.H * params.step.grid.ctas);
  grid.threads = static_cast<unsigned>(32 * warps_of(sizes.K));
  grid.cluster = params.step.layer ? static_cast<unsigned>(params.step.grid.ctas) : 1;
  grid.resident = decode_emulation.resident;
  grid.shared_bytes = sizes.bytes();
  grid.x = static_cast<unsigned>(params.step.grid.ctas);
  grid.y = static_cast<unsigned>(params.step.H);
  const RingKernel kernel = ring_kernel_for(sizes.K, is_vk, params);
  ++decode_emulation.launches;
  decode_emulation.ctas_of_unit = params.step.grid.ctas;
  decode_emulation.trouble =
      emulation::run_grid(grid, decode_emulation.seed, [&] { kernel(params); });
  return decode_emulation.trouble.empty() ? 0 : 1;
}

namespace {

/// A launch's CTAs, and those of a cluster.
struct Ctas {
  unsigned x, y, z, cluster = 1;
};

template <class Params>
int run_single(const SingleInstance& instance, const Params& params, int64_t sequences,
               const Ctas& ctas) {
  emulation::Grid grid{};
  grid.x = ctas.x, grid.y = ctas.y;
  grid.ctas = ctas.x * ctas.y * ctas.z;
  grid.threads = instance.threads;
  grid.cluster = ctas.cluster;
  grid.resident = decode_emulation.resident;
  grid.shared_bytes = instance.shared_bytes;
  const SingleSlots& slots = params.read_slots;
  LateSlots late(slots.data, slots.sequence_bytes, slots.is_64bit, sequences);
  const auto kernel = reinterpret_cast<void (*)(Params)>(const_cast<void*>(instance.kernel));
  ++decode_emulation.launches;
  decode_emulation.ctas_of_unit = static_cast<int>(grid.x);
  decode_emulation.trouble = emulation::run_grid(grid, decode_emulation.seed, [&] {
    late.begin();
    kernel(params);
  });
  return decode_emulation.trouble.empty() ? 0 : 1;
}

}  // namespace

int launch_single(const SingleParams& params, const SingleKind& kind, int64_t sequences,
                  void*) noexcept {
  if (kind.cut == SingleCut::kStream) {
    const SingleInstance instance = kind.tokens == Number::kBfloat16
                                        ? stream_instance<__nv_bfloat16>(kind.state)
                                        : stream_instance<__half>(kind.state);
    return run_single(instance, params, sequences, {params.ctas, 1, 1});
  }
  const SingleInstance instance = kind.tokens == Number::kBfloat16
                                      ? single_instance<__nv_bfloat16>(kind)
                                      : single_instance<__half>(kind);
  return run_single(instance, params, sequences,
                    {params.r * instance.ctas_of_head, params.H, static_cast<unsigned>(sequences)});
}

int launch_single(const SingleLayerParams& params, const SingleKind& kind, int64_t sequences,
                  void*) noexcept {
  const SingleInstance instance = kind.tokens == Number::kBfloat16
                                      ? single_layer_instance<__nv_bfloat16>(kind.state)
                                      : single_layer_instance<__half>(kind.state);
  return run_single(instance, params, sequences,
                    {params.r, params.H, static_cast<unsigned>(sequences), params.r});
}

}  // namespace decode

namespace {

const core::Operator<core::DeltaRuleProblem>& reference() noexcept {
  return ref::recurrent_backend().recurrent_step;
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "the decode kernel, emulated";
  backend.requirement = "nothing";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = []() noexcept { return true; };
  backend.recurrent_step = core::operator_by_sizes<select_recurrent_step, recurrent_step_workspace,
                                                   run_recurrent_step>();
  backend.layer_decode =
      core::operator_by_sizes<select_layer_decode, layer_decode_workspace, run_layer_decode>();
  return backend;
}

}  // namespace

Status select_delta_rule(const core::DeltaRuleProblem&, core::KernelName* name) noexcept {
  *name = "reference";
  return ok_status();
}

Status run_delta_rule(const core::DeltaRuleProblem& problem, sluice_workspace,
                      void* stream) noexcept {
  core::Plan plan;
  if (Status s = reference().plan(problem, core::PlanFor::kCall, &plan); !s.ok()) return s;
  const size_t bytes = (plan.workspace_bytes + 511) / 256 * 256;
  void* const scratch = std::aligned_alloc(256, bytes);
  const Status status = reference().run(problem, plan, {scratch, bytes}, stream);
  std::free(scratch);
  return status;
}

Status select_layer_prefill(const core::LayerProblem&, core::KernelName* name) noexcept {
  *name = "reference";
  return ok_status();
}

size_t layer_prefill_workspace(const core::LayerProblem& problem) noexcept {
  core::Plan plan;
  ref::recurrent_backend().layer_decode.plan(problem, core::PlanFor::kAnyAddress, &plan);
  return plan.workspace_bytes;
}

Status run_layer_prefill(const core::LayerProblem& problem, sluice_workspace workspace,
                         void* stream) noexcept {
  core::Plan plan;
  const Status status =
      ref::recurrent_backend().layer_decode.plan(problem, core::PlanFor::kCall, &plan);
  if (!status.ok()) return status;
  return ref::recurrent_backend().layer_decode.run(problem, plan, workspace, stream);
}

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
