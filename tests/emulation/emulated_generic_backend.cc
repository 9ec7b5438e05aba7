// Makes the generic kernel a CUDA backend of its own: the host code as it is, CTAs one after the other
// on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"
#include "cuda/chunk_forward/launch.h"
#include "cuda/chunk_forward/rows.h"
#include "cuda/kernels/generic/launch.h"
#include "cuda/machine.h"
#include "emulated_launcher.hpp"
#include "emulated_operator.hpp"

// Variables of a CTA are static here. WHY not the word itself: one of them is declared extern.
#undef __shared__
#define __shared__ thread_local
#include "cuda/kernels/generic/kernel.cuh"

namespace sluice::cuda::chunk_forward {
/// Of the emulator's other CTAs, of which there are none here.
alignas(1024) uint8_t dynamic_shared[emulation::kSharedBytes];
}  // namespace sluice::cuda::chunk_forward

namespace sluice::cuda {

namespace generic {

alignas(16) thread_local float dynamic_shared[key_bytes(kMaxK) / sizeof(float)];

namespace {

/// Makes the kernel for K of at most kK known to launches.
template <int kK>
const void* emulated(bool key_wise) noexcept {
  return emulation::known(
      key_wise ? generic_kernel<Config<kK>, true> : generic_kernel<Config<kK>, false>,
      [](emulation::Grid grid, const std::function<void()>& thread, const auto&...) {
        grid.resident = 1;
        const std::string trouble = emulation::run_grid(grid, 11, thread);
        if (!trouble.empty()) std::fprintf(stderr, "emulation: %s\n", trouble.c_str());
        return trouble.empty() ? 0 : 1;
      });
}

}  // namespace

const void* kernel_k32(bool key_wise) noexcept { return emulated<32>(key_wise); }
const void* kernel_k64(bool key_wise) noexcept { return emulated<64>(key_wise); }
const void* kernel_k128(bool key_wise) noexcept { return emulated<128>(key_wise); }
const void* kernel_k256(bool key_wise) noexcept { return emulated<256>(key_wise); }
const void* kernel_k512(bool key_wise) noexcept { return emulated<512>(key_wise); }

}  // namespace generic

// The kernels of Hopper GPUs are not emulated here, and nothing plans them.
void prefill::launch(PrefillParams, const MappedTensors&, void*, Launcher& launcher) noexcept {
  launcher.note(1);
}
int prefill::load_gated_delta() noexcept { return 0; }
int prefill::load_linear_attention() noexcept { return 0; }
int prefill::load_key_gates() noexcept { return 0; }

Machine machine_of(int device) noexcept { return {device, kHopperCapability, 4, {}}; }
DeviceGuard::DeviceGuard(int) noexcept {}
DeviceGuard::~DeviceGuard() = default;

namespace {

Catalogue<core::DeltaRuleProblem> generic_alone() noexcept {
  static const Kernel<core::DeltaRuleProblem> rows[] = {generic_kernel("generic")};
  return rows;
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "the generic kernel, emulated";
  backend.requirement = "nothing";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = []() noexcept { return true; };
  backend.chunk_forward = emulated_operator<generic_alone>();
  backend.recurrent_step = emulated_operator<generic_alone>();
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
