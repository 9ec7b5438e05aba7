// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_backward.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/chunk_backward_parts.h"
#include "cuda/gpu.h"
#include "cuda/kernels/backward/config.h"
#include "cuda/lower_views.h"
#include "cuda/select.h"

namespace sluice::cuda {
namespace {

using backward::BackwardParams, backward::Kernel, device::StageParams;
using core::ChunkBackwardProblem, core::DeltaRuleProblem, core::present, core::Tensor;
using device::Number, device::TokenRows;

// ------------------------------------------------------------------------------- lowering ----

TokenRows token_rows(const Tensor& t) noexcept { return present(t) ? rows_of(t) : TokenRows{}; }

/// [B,T,HV/r,r] as [B,T,HV]: of one member a group has no stride of its own.
TokenRows head_rows(const Tensor& t, int64_t r) noexcept {
  if (!present(t)) return {};
  return {t.data, t.stride[0], t.stride[1], t.stride[r > 1 ? 3 : 2], number_type(t.dtype)};
}

backward::HeadOutput head_output(const Tensor& t) noexcept {
  return present(t) ? backward::HeadOutput{t.data, t.stride[0], number_type(t.dtype)}
                    : backward::HeadOutput{};
}

StageParams lower_stages(const DeltaRuleProblem& p) noexcept {
  constexpr int64_t C = backward::kTokens;
  StageParams s{};
  s.q = token_rows(p.q), s.k = token_rows(p.k), s.values = token_rows(p.v);
  s.state.initial = pool_of(p.state.initial);
  s.cu_seqlens = indices_of(p.rows.cu_seqlens);
  s.N = p.rows.N, s.T = p.rows.T;
  s.H = p.H, s.HV = p.HV, s.K = p.K, s.V = p.V, s.r = p.r;
  const bool packed = present(p.rows.cu_seqlens);
  s.slots = packed ? s.T / C + s.N : core::chunk_count(s.T, C);
  const bool is_vk = p.state.layout == SLUICE_STATE_VK;
  s.row_step = is_vk ? 1 : p.V;
  s.column_step = is_vk ? p.K : 1;
  s.C = static_cast<int32_t>(C);
  s.columns = device::kColumns;
  s.scale = static_cast<float>(p.scale);
  s.head_map_cyclic = p.head_map == SLUICE_HEAD_MAP_CYCLIC;
  s.has_gates = present(p.gate);
  return s;
}

}  // namespace

BackwardParams lower_backward(const ChunkBackwardProblem& b) noexcept {
  const DeltaRuleProblem& p = b.forward;
  BackwardParams out{};
  out.stage = lower_stages(p);
  out.d_o = token_rows(b.d_o);
  out.raw_q = out.stage.q, out.raw_k = out.stage.k;
  out.raw_gate = head_rows(p.gate, p.r), out.raw_beta = head_rows(p.beta, p.r);
  out.A_log = vector_of(p.A_log), out.dt_bias = vector_of(p.dt_bias);
  out.d_final = pool_of(b.d_final), out.dinitial = pool_of(b.dinitial);
  out.dq = token_rows(b.dq), out.dk = token_rows(b.dk), out.dv = token_rows(b.dv);
  out.dgate = head_rows(b.dgate, p.r), out.dbeta = head_rows(b.dbeta, p.r);
  out.dA_log = head_output(b.dA_log), out.ddt_bias = head_output(b.ddt_bias);
  out.gate_form = gate_form(p), out.beta_form = beta_form(p);
  out.beta_factor = static_cast<float>(p.beta_factor);
  out.l2norm_eps = static_cast<float>(p.l2norm_eps);
  out.delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  return out;
}

namespace {

// ------------------------------------------------------------------------------ workspace ----

/// What the stages need beside `params`, and where they leave it. w, once used, is dq's place, and
/// u is Y's.
struct Places {
  TokenRows A, u;
};

Places lay_out(const DeltaRuleProblem& p, Pieces& pieces, BackwardParams* params) noexcept {
  StageParams& s = params->stage;
  Places places{};
  if (p.qk_norm == SLUICE_QK_NORM_L2) {
    s.q = params->q_normal = pieces.rows(p.H, p.K);
    s.k = params->k_normal = pieces.rows(p.H, p.K);
  }
  if (present(p.gate)) {
    s.gate = params->g = pieces.rows(p.HV, 1);
    params->dg = pieces.rows(p.HV, 1);
  }
  s.h = pieces.states(s.slots, Number::kFloat32);
  params->dh = pieces.states(s.slots, Number::kFloat32);
  params->dN = pieces.rows(p.HV, p.V);
  params->dk_parts = pieces.rows(p.HV, p.K);
  params->dq_parts = pieces.rows(p.HV, p.K);
  if (!params->delta_rule) return places;
  if (present(p.beta) || p.beta_factor != 1.0) s.beta = params->beta = pieces.rows(p.HV, 1);
  places.A = pieces.rows(p.HV, backward::kTokens);
  s.A_inverse = pieces.rows(p.HV, backward::kTokens);
  places.u = params->Y = pieces.rows(p.HV, p.V);
  s.w = params->dq_parts;
  s.v_new = pieces.rows(p.HV, p.V);
  return places;
}

// --------------------------------------------------------------------------------- launch ----

/// The forward pass: A_inverse, w, v_new and the states that enter the chunks.
void launch_forward(const BackwardParams& params, const Places& places, Launches* launches) {
  StageParams states = params.stage;
  if (params.delta_rule) {
    StageParams kkt = params.stage;
    kkt.A = places.A, kkt.A_inverse = {}, kkt.h = {};
    launches->stage(stages::Kernel::kPlainKkt, kkt);
    StageParams solve = params.stage;
    solve.A = places.A, solve.u = places.u;
    launches->stage(stages::Kernel::kPlainSolveWy, solve);
    states.values = places.u;
  } else {
    states.w = {}, states.v_new = {};
  }
  launches->stage(stages::Kernel::kPlainChain, states);
}

void launch_plain(const BackwardParams& params, const Places& places, Launches* launches) {
  launches->own(Kernel::kPrepare, params);
  launch_forward(params, places, launches);
  launches->own(Kernel::kLocal, params);
  launches->own(Kernel::kChain, params);
  launches->own(Kernel::kGradients, params);
}

/// What comes after the gradients of tokens.
void launch_sums(const BackwardParams& params, Launches* launches) {
  const bool sums = params.dA_log.data != nullptr || params.ddt_bias.data != nullptr;
  const bool keys = params.dq.data != nullptr || params.dk.data != nullptr;
  if (keys) launches->own(Kernel::kKeys, params);
  if (sums) launches->own(Kernel::kHeadSums, params);
}

bool by_tiles(const ChunkBackwardProblem& b) noexcept {
  return backward_by_tiles(b, compute_capability(b.forward.q.device.index), environment());
}

}  // namespace

Status select_chunk_backward(const ChunkBackwardProblem& b, core::KernelName* name) noexcept {
  if (!environment().status.ok()) return environment().status;
  const int capability = compute_capability(b.forward.q.device.index);
  if (capability < kOldestCapability) {
    return Status::failure(Code::kUnsupported,
                           "chunk_backward: compute capability = %d.%d, expected 8.0 or newer "
                           "(CUDA kernels)",
                           capability / 10, capability % 10);
  }
  if (b.forward.K > backward::kMaxK) {
    return Status::failure(
        Code::kUnsupported,
        "chunk_backward: k.shape[3] = %lld, expected at most %lld (CUDA kernels)",
        static_cast<long long>(b.forward.K), static_cast<long long>(backward::kMaxK));
  }
  *name = by_tiles(b) ? backward_tiles_name(b) : "cuda.chunk_backward.plain";
  return ok_status();
}

size_t chunk_backward_workspace(const ChunkBackwardProblem& b) noexcept {
  Pieces pieces(b.forward, nullptr);
  BackwardParams params = lower_backward(b);
  lay_out(b.forward, pieces, &params);
  // WHY whatever the kernels: addresses may be others when the operator runs.
  return std::max(pieces.bytes(), backward_tiles_workspace(b));
}

Status run_chunk_backward(const ChunkBackwardProblem& b, sluice_workspace workspace,
                          void* stream) noexcept {
  const int device = b.forward.q.device.index;
  const DeviceGuard guard(device);
  const Target target = target_of(device);
  Launches launches(target, stream, guard.error());
  Pieces pieces(b.forward, workspace.data);
  BackwardParams params = lower_backward(b);
  if (by_tiles(b)) {
    launch_backward_tiles(b, target, pieces, &params, &launches);
  } else {
    const Places places = lay_out(b.forward, pieces, &params);
    launch_plain(params, places, &launches);
  }
  launch_sums(params, &launches);
  return launches.status();
}

}  // namespace sluice::cuda
