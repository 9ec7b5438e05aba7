// Fills in the CUDA backend's entry of the core's table from the catalogues of its operators.
// SPDX-License-Identifier: Apache-2.0
#include "core/backend.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <initializer_list>

#include "core/operators.hpp"
#include "cuda/catalogues.h"
#include "cuda/indices/read_indices.h"

namespace sluice::cuda {
namespace {

bool available() noexcept {
  static const bool found = [] {
    for (int device = 0; device < device_count(); ++device) {
      if (machine_of(device).capability >= kOldestCapability) return true;
    }
    return false;
  }();
  return found;
}

template <class Visit>
void for_each_catalogue(Visit visit) noexcept {
#define SLUICE_VISIT(name, op, args) visit(name##_catalogue());
    SLUICE_OPERATORS(SLUICE_VISIT)
#undef SLUICE_VISIT
}

Status warm_up(int32_t device_index) noexcept {
  const DeviceGuard guard(device_index);
  int error = guard.error();
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    return Status::failure(Code::kDeviceError,
                           "warm_up: device %d = %s, expected a GPU (no NVIDIA driver for CUDA %d "
                           "or newer was found, or it shows this process no GPU)",
                           device_index, cudaGetErrorName(static_cast<cudaError_t>(error)),
                           CUDART_VERSION / 1000);
  }
  const Machine machine = machine_of(device_index);
  for_each_catalogue([&](auto catalogue) {
    if (error == cudaSuccess) error = load_catalogue(catalogue, machine);
  });
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "warm_up: device %d = %s, expected cudaSuccess",
                         device_index, cudaGetErrorName(static_cast<cudaError_t>(error)));
}

/// SLUICE_CUDA_KERNEL by KernelOverride.
constexpr const char* kKernelWords[] = {"auto", "fused", "generic"};

/// "cuda.device0: NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139 GiB".
size_t describe_device(int device, char* out, size_t size) noexcept {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return 0;
  const int length = std::snprintf(
      out, size, "cuda.device%d: %s, compute capability %d.%d, %d multiprocessors, %zu GiB\n",
      device, properties.name, properties.major, properties.minor, properties.multiProcessorCount,
      properties.totalGlobalMem >> 30);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

size_t describe(char* out, size_t size) noexcept {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const int count = device_count();
  const int length =
      std::snprintf(out, size,
                    "cuda.devices: %d\n"
                    "cuda.driver: %d\n"
                    "cuda.runtime: %d\n"
                    "cuda.kernel_override: %s\n",
                    count, driver, runtime, kKernelWords[static_cast<int>(environment().kernel)]);
  size_t used = length > 0 ? static_cast<size_t>(length) : 0;
  for (int device = 0; device < count; ++device) {
    const size_t at = std::min(used, size);
    used += describe_device(device, out + at, size - at);
  }
  for_each_catalogue([&](auto catalogue) {
    const size_t at = std::min(used, size);
    used += describe_catalogue(catalogue, out + at, size - at);
  });
  return used;
}

/// The GPU that a problem is for.
int device_of(const core::DeltaRuleProblem& p) noexcept { return p.k.device.index; }
int device_of(const core::CausalConvProblem& p) noexcept { return p.x.device.index; }
int device_of(const core::GatedNormProblem& p) noexcept { return p.x.device.index; }
int device_of(const core::LayerProblem& p) noexcept { return device_of(p.conv[0]); }
int device_of(const core::LayerBackwardProblem& p) noexcept { return device_of(p.conv[0].forward); }
int device_of(const core::StateFoldProblem& p) noexcept { return p.addend.device.index; }
int device_of(const core::ChunkStageProblem& p) noexcept {
  for (const core::Tensor* t : {&p.k, &p.g_cumsum, &p.A_inverse}) {
    if (core::present(*t)) return t->device.index;
  }
  return p.o.device.index;
}
template <class Problem>
int device_of(const Problem& p) noexcept {
  return device_of(p.forward);
}

/// An operator that is planned by a catalogue on the GPU of its tensors.
template <sluice_op kOp, auto catalogue>
constexpr auto operator_by() noexcept {
  return []<class Problem>(Catalogue<Problem> (*)() noexcept) {
    return core::Operator<Problem>{
        [](const Problem& problem, core::PlanFor purpose, core::Plan* plan) noexcept {
          return plan_by(catalogue(), problem, machine_of(device_of(problem)), environment(),
                         purpose, plan);
        },
        [](const Problem& problem, const core::Plan& plan, sluice_workspace workspace,
           void* stream) noexcept {
          const char* op = core::kOperatorNames[kOp];
          if constexpr (kOp == SLUICE_OP_CHUNK_STAGE) op = core::stage_name(problem.stage);
          return run_plan(op, problem, plan, machine_of(device_of(problem)), workspace.data,
                          stream);
        }};
  }(catalogue);
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "kernels for Hopper GPUs, and generic ones for every GPU since Ampere";
  backend.requirement =
      CUDART_VERSION < 13000
          ? "an NVIDIA GPU of compute capability 8.0 or newer, a driver for CUDA 12"
          : "an NVIDIA GPU of compute capability 8.0 or newer, a driver for CUDA 13";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = available;
  backend.warm_up = warm_up;
  backend.describe = describe;
  backend.read_indices = read_indices;
#define SLUICE_FILL(name, op, args) backend.name = operator_by<op, name##_catalogue>();
  SLUICE_OPERATORS(SLUICE_FILL)
#undef SLUICE_FILL
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
