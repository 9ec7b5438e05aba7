// SPDX-License-Identifier: Apache-2.0
#include "cuda/stages.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <utility>

#include "core/host_access.hpp"
#include "cuda/gpu.h"
#include "cuda/kernels/stages/config.h"
#include "cuda/lower.h"
#include "cuda/lower_views.h"
#include "cuda/prefill/launch.h"
#include "cuda/select.h"

namespace sluice::cuda {
namespace {

using core::ChunkStageProblem, core::present, core::Tensor;
using stages::Kernel;
using ll = long long;

/// The view by whose device a stage goes.
const Tensor& written(const ChunkStageProblem& p) noexcept {
  switch (p.stage) {
    case SLUICE_STAGE_CHUNK_CUMSUM:
      return p.g_cumsum;
    case SLUICE_STAGE_SCALED_DOT_KKT:
    case SLUICE_STAGE_CUMSUM_KKT:
      return p.A;
    case SLUICE_STAGE_SOLVE_TRIL:
      return p.A_inverse;
    case SLUICE_STAGE_WY_FAST:
    case SLUICE_STAGE_SOLVE_WY:
      return p.u;
    case SLUICE_STAGE_CHUNK_H:
      return p.k;
    default:
      return p.o;
  }
}

/// [B,T,HV,..] and [B,T,HV].
device::TokenRows token_rows(const Tensor& t) noexcept {
  return present(t) ? rows_of(t) : device::TokenRows{};
}

// --------------------------------------------------------------------------------- choice ----

/// Whether all views that are present are aligned and of one 16-bit dtype, that of k.
bool tiles(const ChunkStageProblem& p, std::initializer_list<const Tensor*> views) noexcept {
  const sluice_dtype io = p.k.dtype;
  for (const Tensor* view : views) {
    if (!present(*view)) continue;
    if (view->dtype.bits != 16 || view->dtype.code != io.code || !aligned(*view)) return false;
  }
  return (p.C == 64 || p.C == 128) && p.K % 64 == 0 && p.V % 64 == 0;
}

/// What carries a state keeps K rows of it in registers.
bool carried(const ChunkStageProblem& p) noexcept { return p.K == 64 || p.K == 128; }
bool tiled_states(const ChunkStageProblem& p) noexcept {
  return !present(p.h) || p.state.layout == SLUICE_STATE_KV;
}

/// The kernel of tensor cores of a stage, if it has one that takes the problem.
bool choose_tiles(const ChunkStageProblem& p, Kernel* kernel) noexcept {
  const bool narrow = p.K <= stages::kTileMaxK, kv = tiled_states(p);
  switch (p.stage) {
    case SLUICE_STAGE_SCALED_DOT_KKT:
    case SLUICE_STAGE_CUMSUM_KKT:
      *kernel = Kernel::kKkt;
      return narrow && tiles(p, {&p.k}) && aligned(p.A);
    case SLUICE_STAGE_WY_FAST:
      *kernel = Kernel::kWy;
      return tiles(p, {&p.k, &p.values, &p.u, &p.w}) && aligned(p.A_inverse);
    case SLUICE_STAGE_SOLVE_WY:
      *kernel = Kernel::kSolveWy;
      return tiles(p, {&p.k, &p.values, &p.u, &p.w});
    case SLUICE_STAGE_CHUNK_H:
      *kernel = p.key_gates ? Kernel::kKeyStates : Kernel::kStates;
      return carried(p) && kv && tiles(p, {&p.k, &p.values, &p.w, &p.v_new, &p.h});
    case SLUICE_STAGE_CHUNK_O:
      *kernel = present(p.h) ? Kernel::kOutputs : Kernel::kGla;
      return (present(p.h) ? narrow && kv : carried(p)) &&
             tiles(p, {&p.q, &p.k, &p.values, &p.h, &p.o});
    default:
      return false;
  }
}

Kernel plain_kernel(const ChunkStageProblem& p) noexcept {
  switch (p.stage) {
    case SLUICE_STAGE_CHUNK_CUMSUM:
      return Kernel::kCumsum;
    case SLUICE_STAGE_SCALED_DOT_KKT:
    case SLUICE_STAGE_CUMSUM_KKT:
      return Kernel::kPlainKkt;
    case SLUICE_STAGE_SOLVE_TRIL:
      return Kernel::kSolve;
    case SLUICE_STAGE_WY_FAST:
      return Kernel::kPlainWy;
    case SLUICE_STAGE_SOLVE_WY:
      return Kernel::kPlainSolveWy;
    case SLUICE_STAGE_CHUNK_H:
      return Kernel::kPlainChain;
    default:
      return present(p.h) ? Kernel::kPlainOutputs : Kernel::kPlainChain;
  }
}

/// Most dynamic shared bytes of a CTA.
int64_t shared_limit(int capability) noexcept {
  if (capability == 80 || capability == 87) return 163 * 1024;
  const bool small = capability == 86 || capability == 89 || capability >= 120;
  return (small ? 99 : 227) * 1024;
}

core::KernelName name_of(Kernel kernel, const ChunkStageProblem& p) noexcept {
  const bool sums = p.stage == SLUICE_STAGE_CUMSUM_KKT;
  switch (kernel) {
    case Kernel::kCumsum:
      return "cuda.chunk_cumsum";
    case Kernel::kSolve:
      return "cuda.solve_tril";
    case Kernel::kPlainKkt:
      return sums ? "cuda.cumsum_kkt.plain" : "cuda.scaled_dot_kkt.plain";
    case Kernel::kPlainWy:
      return "cuda.wy_fast.plain";
    case Kernel::kPlainSolveWy:
      return "cuda.solve_wy.plain";
    case Kernel::kPlainChain:
      return p.stage == SLUICE_STAGE_CHUNK_H ? "cuda.chunk_h.plain" : "cuda.chunk_o.plain.states";
    case Kernel::kPlainOutputs:
      return "cuda.chunk_o.plain";
    case Kernel::kKkt:
      return sums ? "cuda.cumsum_kkt.tiles" : "cuda.scaled_dot_kkt.tiles";
    case Kernel::kWy:
      return "cuda.wy_fast.tiles";
    case Kernel::kSolveWy:
      return "cuda.solve_wy.tiles";
    case Kernel::kOutputs:
      return "cuda.chunk_o.tiles";
    case Kernel::kStates:
      return "cuda.chunk_h.tiles";
    case Kernel::kKeyStates:
      return "cuda.chunk_h.tiles.key_wise";
    default:
      return "cuda.chunk_o.tiles.states";
  }
}

// ------------------------------------------------------------------------------- lowering ----

device::StateSlots state_slots(const sluice_state_io& state) noexcept {
  device::StateSlots out{};
  out.initial = pool_of(state.initial);
  out.final = pool_of(state.final);
  out.read_slots = table_of(state.read_slots);
  out.write_slots = table_of(state.write_slots);
  if (present(state.has_initial_state)) {
    out.has_initial_state = static_cast<const uint8_t*>(state.has_initial_state.data);
    out.has_initial_stride = state.has_initial_state.stride[0];
  }
  out.pad_below = state.pad_below;
  return out;
}

/// chunk_cumsum of key-wise gates: the channels of a head are its heads, HV times.
void lower_key_sums(const ChunkStageProblem& p, device::StageParams* out) noexcept {
  out->repeats = p.HV;
  out->gate_repeat = out->gate.head_stride;
  out->sums_repeat = out->g_cumsum.head_stride;
  out->gate.head_stride = out->g_cumsum.head_stride = 1;
  out->HV = p.K;
}

bool is_key_states(const ChunkStageProblem& p) noexcept {
  return p.stage == SLUICE_STAGE_CHUNK_H && p.key_gates;
}

/// Where chunk_h of key-wise gates keeps what comes first, [B,T,HV,K] each: their sums, unless they
/// are given, and keys with their decays. WHY keys whatever the kernel: addresses may be others
/// when the stage runs.
struct KeyStatesMemory {
  size_t sums = 0, keys = 0;  ///< bytes
  explicit KeyStatesMemory(const ChunkStageProblem& p) noexcept {
    const auto numbers = static_cast<size_t>(p.rows.B * p.rows.T * p.HV * p.K);
    if (present(p.gate)) sums = sizeof(float) * numbers;
    if (carried(p) && p.k.dtype.bits == 16) keys = sizeof(uint16_t) * numbers;
  }
};

/// A dense view [B,T,HV,K] of the workspace.
Tensor key_rows(const ChunkStageProblem& p, void* memory, sluice_dtype dtype) noexcept {
  Tensor rows{};
  rows.data = memory;
  rows.dtype = dtype;
  rows.rank = 4;
  const int64_t shape[] = {p.rows.B, p.rows.T, p.HV, p.K};
  int64_t dense = 1;
  for (int axis = 3; axis >= 0; --axis) {
    rows.shape[axis] = shape[axis], rows.stride[axis] = dense;
    dense *= shape[axis];
  }
  return rows;
}

}  // namespace

device::StageParams lower_stage(const ChunkStageProblem& p) noexcept {
  device::StageParams out{};
  out.q = token_rows(p.q), out.k = token_rows(p.k), out.values = token_rows(p.values);
  const bool sums = p.stage == SLUICE_STAGE_CUMSUM_KKT;
  out.gate = token_rows(p.gate);
  (sums ? out.sums : out.g_cumsum) = token_rows(p.g_cumsum);
  out.beta = token_rows(p.beta);
  out.A = token_rows(p.A), out.A_inverse = token_rows(p.A_inverse);
  out.w = token_rows(p.w), out.u = token_rows(p.u);
  out.v_new = token_rows(p.v_new), out.o = token_rows(p.o);
  if (present(p.h)) {
    out.h = {p.h.data, p.h.stride[0], p.h.stride[1], p.h.stride[2], number_type(p.h.dtype)};
  }
  out.state = state_slots(p.state);
  out.cu_seqlens = indices_of(p.rows.cu_seqlens);
  out.N = p.rows.N, out.T = p.rows.T;
  out.H = p.H, out.HV = p.HV, out.K = p.K, out.V = p.V, out.r = p.r;
  const bool packed = present(p.rows.cu_seqlens);
  out.slots = packed ? p.rows.T / p.C + p.rows.N : core::chunk_count(p.rows.T, p.C);
  const bool is_vk = p.state.layout == SLUICE_STATE_VK;
  out.row_step = is_vk ? 1 : p.V;
  out.column_step = is_vk ? p.K : 1;
  out.C = static_cast<int32_t>(p.C);
  out.columns = stages::kColumns;
  out.scale = static_cast<float>(p.scale);
  out.head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  out.reverse = p.direction == SLUICE_DIRECTION_REVERSE;
  out.upper = p.triangle == SLUICE_TRIANGLE_UPPER;
  out.has_gates = present(p.gate) || present(p.g_cumsum);
  out.key_gates = p.key_gates;
  out.repeats = 1;
  if (p.stage == SLUICE_STAGE_CHUNK_CUMSUM && p.key_gates) lower_key_sums(p, &out);
  return out;
}

Status choose_stage_kernel(const ChunkStageProblem& p, const Gpu& gpu, const Environment& wish,
                           StageChoice* choice) noexcept {
  const int capability = gpu.capability;
  *choice = {};
  if (capability < kOldestCapability) {
    return Status::failure(Code::kUnsupported,
                           "%s: compute capability = %d.%d, expected 8.0 or newer (CUDA kernels)",
                           core::stage_name(p.stage), capability / 10, capability % 10);
  }
  const bool own =
      (p.stage == SLUICE_STAGE_CHUNK_O && tiles(p, {&p.q, &p.k, &p.values, &p.h, &p.o})) ||
      (p.stage == SLUICE_STAGE_CHUNK_H && tiles(p, {&p.k, &p.values, &p.w, &p.v_new, &p.h}));
  if (own && choose_hopper(p, gpu, wish, choice)) return ok_status();
  Kernel* const kernel = &choice->kernel;
  const auto fits = [&] {
    return stages::plan_launch(*kernel, lower_stage(p)).shared_bytes <= shared_limit(capability);
  };
  if (!choose_tiles(p, kernel) || !fits()) *kernel = plain_kernel(p);
  if (*kernel == Kernel::kPlainChain && p.K > stages::kPlainMaxK) {
    return Status::failure(
        Code::kUnsupported, "%s: k.shape[3] = %lld, expected at most %lld (CUDA kernels)",
        core::stage_name(p.stage), static_cast<ll>(p.K), static_cast<ll>(stages::kPlainMaxK));
  }
  choice->name = name_of(*kernel, p);
  return ok_status();
}

namespace {

Status choose(const ChunkStageProblem& p, StageChoice* choice) noexcept {
  if (!environment().status.ok()) return environment().status;
  const int d = written(p).device.index;
  const Gpu gpu{compute_capability(d), multiprocessors(d), resident_clusters(d)};
  return choose_stage_kernel(p, gpu, environment(), choice);
}

/// One launch, or three where simple GLA is cut into segments.
int launch_segments(Kernel kernel, device::StageParams params, void* memory, const Target& target,
                    void* stream) noexcept {
  params.columns = stages::state_columns(params, target.multiprocessors);
  const int64_t tokens =
      kernel == Kernel::kGla ? stages::segment_tokens(params, target.multiprocessors) : 0;
  if (tokens > 0) {
    stages::cut(tokens, memory, &params);
    params.segments.states_only = true;
    int error = stages::launch(kernel, params, target, stream);
    if (error == cudaSuccess) error = stages::launch(Kernel::kJoin, params, target, stream);
    if (error != cudaSuccess) return error;
    params.segments.states_only = false;
  }
  return stages::launch(kernel, params, target, stream);
}

/// chunk_h with key-wise gates: their sums, keys with their decays, states.
int launch_key_states(ChunkStageProblem p, Kernel kernel, void* memory, const Target& target,
                      void* stream) noexcept {
  const KeyStatesMemory sizes(p);
  int error = cudaSuccess;
  if (present(p.gate)) {
    p.g_cumsum = key_rows(p, memory, core::kFloat32);
    p.stage = SLUICE_STAGE_CHUNK_CUMSUM;
    p.direction = SLUICE_DIRECTION_FORWARD;
    error = stages::launch(Kernel::kCumsum, lower_stage(p), target, stream);
    p.stage = SLUICE_STAGE_CHUNK_H;
    p.gate = {};
  }
  device::StageParams params = lower_stage(p);
  if (error == cudaSuccess && kernel == Kernel::kKeyStates) {
    auto* const keys = static_cast<std::byte*>(memory) + sizes.sums;
    params.o = token_rows(key_rows(p, keys, p.k.dtype));
    error = stages::launch(Kernel::kScaleKeys, params, target, stream);
    params.k = std::exchange(params.o, {});
    params.H = params.HV, params.r = 1, params.head_map_cyclic = false;
    params.columns = stages::kColumns / 2;
  }
  return error == cudaSuccess ? stages::launch(kernel, params, target, stream) : error;
}

int launch_stage(const ChunkStageProblem& p, const StageChoice& choice, void* memory, int device,
                 void* stream) noexcept {
  const auto states = static_cast<int32_t>(states_per_batch(p));  // not of all ways
  const Target target = target_of(device);
  switch (choice.way) {
    case StageWay::kLinear:
      return prefill::launch(lower_linear_stage(p, choice.split),
                             lower_tiles(as_linear_attention(p)), memory, device, stream);
    case StageWay::kOutputs:
      return chunk_o::launch(lower_stage(p), lower_output_tiles(p), states, target, stream);
    case StageWay::kStates:
      return chunk_h::launch(lower_stage(p), lower_state_tiles(p), states, target, stream);
    default:
      if (is_key_states(p)) return launch_key_states(p, choice.kernel, memory, target, stream);
      return launch_segments(choice.kernel, lower_stage(p), memory, target, stream);
  }
}

}  // namespace

Status select_chunk_stage(const ChunkStageProblem& p, core::KernelName* name) noexcept {
  StageChoice choice;
  const Status status = choose(p, &choice);
  *name = choice.name;
  return status;
}

size_t chunk_stage_workspace(const ChunkStageProblem& p) noexcept {
  if (is_key_states(p)) {
    const KeyStatesMemory sizes(p);
    return sizes.sums + sizes.keys;
  }
  // WHY whatever the addresses: they may be others when the stage runs.
  const bool gla = p.stage == SLUICE_STAGE_CHUNK_O && !present(p.h) && carried(p) &&
                   p.V % stages::kColumns == 0 && (p.C == 64 || p.C == 128) && p.k.dtype.bits == 16;
  if (!gla) return 0;
  const int device = p.o.device.index, processors = multiprocessors(device);
  const device::StageParams params = lower_stage(p);
  const int64_t tokens = stages::segment_tokens(params, processors);
  const auto segments = static_cast<size_t>(stages::segment_bytes(params, tokens));
  const core::DeltaRuleProblem linear = as_linear_attention(p);
  const Environment& wish = environment();
  if (!may_be_fused(linear, {compute_capability(device), processors}, wish)) return segments;
  const Room room{processors, resident_clusters(device)};
  return std::max(segments, split_workspace(linear, choose_split(linear, room, wish.cut)));
}

Status run_chunk_stage(const ChunkStageProblem& p, sluice_workspace workspace,
                       void* stream) noexcept {
  const int device = written(p).device.index;
  StageChoice choice;
  if (const Status status = choose(p, &choice); !status.ok()) return status;
  const DeviceGuard guard(device);
  int error = guard.error();
  if (error == cudaSuccess) {
    error = launch_stage(p, choice, workspace.data, device, stream);
  }
  if (error == cudaSuccess) return ok_status();
  return Status::failure(Code::kDeviceError, "%s: launch = %s, expected cudaSuccess",
                         core::stage_name(p.stage),
                         cudaGetErrorName(static_cast<cudaError_t>(error)));
}

}  // namespace sluice::cuda
