// Decides which kernels take a stage. Host code, tested without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_stage/accepts.h"

#include "cuda/catalogue.h"
#include "cuda/chunk_stage/lower.h"
#include "cuda/kernels/stages/config.h"

namespace sluice::cuda {
namespace {

using core::ChunkStageProblem, core::present, core::Tensor;
using StageKernel = stages::Kernel;

Status answer(bool takes) noexcept { return takes ? ok_status() : left_to_others(); }

/// Whether `test` holds for all views of 16-bit numbers that kernels of tensor cores move.
template <class Test>
bool all_io_views(const ChunkStageProblem& p, const Test& test) noexcept {
  switch (p.stage) {
    case SLUICE_STAGE_SCALED_DOT_KKT:
    case SLUICE_STAGE_CUMSUM_KKT:
      return test(p.k);
    case SLUICE_STAGE_WY_FAST:
    case SLUICE_STAGE_SOLVE_WY:
      return test(p.k) && test(p.values) && test(p.u) && test(p.w);
    case SLUICE_STAGE_CHUNK_H:
      return test(p.k) && test(p.values) && test(p.w) && test(p.v_new) && test(p.h);
    default:
      return test(p.q) && test(p.k) && test(p.values) && test(p.h) && test(p.o);
  }
}

/// The matrix [B,T,HV,C] of any dtype that they move in packs of 16 bytes too; absent: none.
Tensor packed_matrix(const ChunkStageProblem& p) noexcept {
  if (p.stage == SLUICE_STAGE_WY_FAST) return p.A_inverse;
  const bool writes_A =
      p.stage == SLUICE_STAGE_SCALED_DOT_KKT || p.stage == SLUICE_STAGE_CUMSUM_KKT;
  return writes_A ? p.A : Tensor{};
}

/// Whether sizes, dtypes and strides are those of kernels of tensor cores.
bool is_tiled(const ChunkStageProblem& p) noexcept {
  if ((p.C != 64 && p.C != 128) || p.K % 64 != 0 || p.V % 64 != 0) return false;
  const sluice_dtype io = p.k.dtype;
  return has_packed_strides(packed_matrix(p)) && all_io_views(p, [&](const Tensor& t) {
           const bool same = t.dtype.bits == 16 && t.dtype.code == io.code;
           return !present(t) || (same && has_packed_strides(t));
         });
}

/// What carries a state keeps K rows of it in registers.
bool carries_tiles(const ChunkStageProblem& p) noexcept { return p.K == 64 || p.K == 128; }

/// Whether tensor maps can name these rows and h, in chunks of 64 tokens, K of 64 or 128.
template <class... Rows>
bool is_mapped(const ChunkStageProblem& p, const Rows&... rows) noexcept {
  const int64_t per_batch = states_per_batch(p), states = present(p.h) ? p.h.shape[1] : 0;
  return p.C == 64 && carries_tiles(p) && per_batch > 0 &&
         (!present(p.h) || p.state.layout == SLUICE_STATE_KV) &&
         are_countable(p.rows.T, per_batch * p.rows.B + states) && (is_mappable(rows) && ...);
}

/// Whether the kernel of tensor cores of a stage takes sizes like these.
bool fits_tile_kernel(const ChunkStageProblem& p, StageKernel kernel) noexcept {
  const bool narrow = p.K <= device::kTileMaxK;
  const bool kv = !present(p.h) || p.state.layout == SLUICE_STATE_KV;
  if (p.key_gates && kernel != StageKernel::kKeyStates) return false;
  switch (kernel) {
    case StageKernel::kKkt:
      return narrow;
    case StageKernel::kWy:
    case StageKernel::kSolveWy:
      return true;
    case StageKernel::kStates:
    case StageKernel::kKeyStates:
      return carries_tiles(p) && kv;
    case StageKernel::kOutputs:
      return narrow && kv;
    case StageKernel::kGla:
      return carries_tiles(p);
    default:
      return false;
  }
}

/// The kernels of each stage, in their order; kCumsum for tensor cores: none.
constexpr struct {
  StageKernel plain, tile;
} kKernels[core::kStages] = {
    {StageKernel::kCumsum, StageKernel::kCumsum},
    {StageKernel::kPlainKkt, StageKernel::kKkt},  // scaled_dot_kkt
    {StageKernel::kSolve, StageKernel::kCumsum},
    {StageKernel::kPlainWy, StageKernel::kWy},
    {StageKernel::kPlainChain, StageKernel::kStates},
    {StageKernel::kPlainOutputs, StageKernel::kOutputs},
    {StageKernel::kPlainKkt, StageKernel::kKkt},  // cumsum_kkt
    {StageKernel::kPlainSolveWy, StageKernel::kSolveWy},
};

/// chunk_o that computes its states itself.
bool carries_states(const ChunkStageProblem& p) noexcept {
  return p.stage == SLUICE_STAGE_CHUNK_O && !present(p.h);
}

/// Most dynamic shared bytes of a CTA.
int64_t shared_limit(int capability) noexcept {
  if (capability == 80 || capability == 87) return 163 * 1024;
  const bool small = capability == 86 || capability == 89 || capability >= 120;
  return (small ? 99 : 227) * 1024;
}

}  // namespace

StageKernel tile_kernel(const ChunkStageProblem& p) noexcept {
  if (carries_states(p)) return StageKernel::kGla;
  if (p.stage == SLUICE_STAGE_CHUNK_H && p.key_gates) return StageKernel::kKeyStates;
  return kKernels[p.stage].tile;
}

StageKernel plain_kernel(const ChunkStageProblem& p) noexcept {
  return carries_states(p) ? StageKernel::kPlainChain : kKernels[p.stage].plain;
}

Status accept_linear_stage(const ChunkStageProblem& p, const Machine& machine) noexcept {
  return answer(machine.is_hopper() && carries_states(p) && !p.key_gates && is_tiled(p));
}

Status accept_hopper_outputs(const ChunkStageProblem& p, const Machine& machine) noexcept {
  const bool outputs = p.stage == SLUICE_STAGE_CHUNK_O && present(p.h) && !p.key_gates;
  if (!machine.is_hopper() || !outputs || !is_tiled(p)) return left_to_others();
  const chunk_o::MappedTensors t = lower_output_tensors(p);
  return answer(is_mapped(p, t.q, t.k, t.v, t.h, t.o));
}

Status accept_hopper_states(const ChunkStageProblem& p, const Machine& machine) noexcept {
  const bool delta_rule = p.stage == SLUICE_STAGE_CHUNK_H && present(p.w) && !p.key_gates;
  if (!machine.is_hopper() || !delta_rule || !is_tiled(p)) return left_to_others();
  const chunk_h::MappedTensors t = lower_state_tensors(p);
  return answer(is_mapped(p, t.k, t.w, t.u, t.v_new, t.h));
}

Status accept_tiles(const ChunkStageProblem& p, const Machine& machine) noexcept {
  const StageKernel kernel = tile_kernel(p);
  if (machine.capability < kOldestCapability || !fits_tile_kernel(p, kernel) || !is_tiled(p)) {
    return left_to_others();
  }
  const device::StageParams params = lower_stage_sizes(p, p.C);
  return answer(stages::plan_launch(kernel, params).shared_bytes <=
                shared_limit(machine.capability));
}

Status accept_packed_addresses(const ChunkStageProblem& p) noexcept {
  return answer(has_packed_address(packed_matrix(p)) && all_io_views(p, has_packed_address));
}

Status accept_plain(const ChunkStageProblem& p, const Machine& machine) noexcept {
  const char* const op = core::stage_name(p.stage);
  if (const Status status = check_capability(op, machine); !status.ok()) return status;
  if (plain_kernel(p) != StageKernel::kPlainChain) return ok_status();
  return check_at_most(op, "k.shape[3]", p.K, device::kPlainMaxK);
}

}  // namespace sluice::cuda
