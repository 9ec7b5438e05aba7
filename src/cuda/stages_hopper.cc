// chunk_h, and both forms of chunk_o, on Hopper, which have kernels of their own: choice and
// lowering.
// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>

#include "cuda/lower.h"
#include "cuda/lower_views.h"
#include "cuda/stages.h"

namespace sluice::cuda {
namespace {

using core::ChunkStageProblem, core::present, core::Tensor;

/// [B,T,HV] as [B,T,HV/r,r].
Tensor by_group(Tensor t, int64_t r) noexcept {
  if (!present(t)) return t;
  t.rank = 4;
  t.shape[3] = r, t.stride[3] = t.stride[2];
  t.shape[2] /= r, t.stride[2] *= r;
  return t;
}

/// By dtype (bfloat16 first) and K (64 first): whole, in 64 columns of V, cut, both, in
/// clusters, and with prefixes.
#define SLUICE_LINEAR(name)                                \
  {"cuda.chunk_o.sm_90a.states." name,                     \
   "cuda.chunk_o.sm_90a.states." name ".columns",          \
   "cuda.chunk_o.sm_90a.states." name ".segments",         \
   "cuda.chunk_o.sm_90a.states." name ".columns.segments", \
   "cuda.chunk_o.sm_90a.states." name ".clusters",         \
   "cuda.chunk_o.sm_90a.states." name ".prefix"}
constexpr core::KernelName kLinearNames[2][2][6] = {
    {SLUICE_LINEAR("bf16.k64"), SLUICE_LINEAR("bf16.k128")},
    {SLUICE_LINEAR("fp16.k64"), SLUICE_LINEAR("fp16.k128")}};
#undef SLUICE_LINEAR
constexpr core::KernelName kOutputNames[2][2] = {
    {"cuda.chunk_o.sm_90a.bf16.k64", "cuda.chunk_o.sm_90a.bf16.k128"},
    {"cuda.chunk_o.sm_90a.fp16.k64", "cuda.chunk_o.sm_90a.fp16.k128"}};

constexpr core::KernelName kStateNames[2][2] = {
    {"cuda.chunk_h.sm_90a.bf16.k64", "cuda.chunk_h.sm_90a.bf16.k128"},
    {"cuda.chunk_h.sm_90a.fp16.k64", "cuda.chunk_h.sm_90a.fp16.k128"}};

int type_index(const ChunkStageProblem& p) noexcept {
  return number_type(p.k.dtype) == device::Number::kBfloat16 ? 0 : 1;
}

core::KernelName linear_name(const ChunkStageProblem& p, const device::CutRequest& split) noexcept {
  return kLinearNames[type_index(p)][p.K / 128][linear_way(split, p.V)];
}

/// Whether linear attention's kernel takes a chunk_o without h.
bool choose_linear(const ChunkStageProblem& p, const Gpu& gpu, const Environment& wish,
                   StageChoice* choice) noexcept {
  KernelChoice found;
  const Environment fused{KernelOverride::kFused, wish.cut};
  if (!choose_kernel(as_linear_attention(p), gpu, fused, &found).ok()) return false;
  choice->way = StageWay::kLinear;
  choice->split = found.split;
  choice->name = linear_name(p, found.split);
  return true;
}

/// Whether tensor maps can name h and the rows of these views, chunks of 64 tokens, K of 64 or 128.
bool mapped(const ChunkStageProblem& p, std::initializer_list<const Tensor*> views) noexcept {
  constexpr int64_t kLimit = int64_t{1} << 31;
  const int64_t per_batch = states_per_batch(p);
  if (p.C != 64 || (p.K != 64 && p.K != 128) || per_batch <= 0) return false;
  if (present(p.h) && p.state.layout != SLUICE_STATE_KV) return false;
  const int64_t states = present(p.h) ? p.h.shape[1] : 0;
  if (p.rows.T >= kLimit - 64 || per_batch * p.rows.B + states >= kLimit) return false;
  for (const Tensor* t : views) {
    for (int axis = 0; axis < 3 && present(*t); ++axis) {
      if (t->shape[axis] > 1 && (t->stride[axis] <= 0 || t->stride[axis] >= kLimit * 128)) {
        return false;
      }
    }
  }
  return true;
}

bool choose_outputs(const ChunkStageProblem& p, StageChoice* choice) noexcept {
  if (!mapped(p, {&p.q, &p.k, &p.values, &p.h, &p.o})) return false;
  choice->way = StageWay::kOutputs;
  choice->name = kOutputNames[type_index(p)][p.K / 128];
  return true;
}

bool choose_states(const ChunkStageProblem& p, StageChoice* choice) noexcept {
  if (!present(p.w) || p.key_gates || !mapped(p, {&p.k, &p.w, &p.values, &p.v_new, &p.h}))
    return false;
  choice->way = StageWay::kStates;
  choice->name = kStateNames[type_index(p)][p.K / 128];
  return true;
}

/// h of all batch entries as rows of states.
tile::TokenTensor states_tensor(const ChunkStageProblem& p) noexcept {
  if (!present(p.h)) return {};
  const Tensor& h = p.h;
  const int64_t states = (p.rows.B - 1) * states_per_batch(p) + h.shape[1];
  return {h.data, states, p.K, p.HV, p.V, h.stride[1], p.V, h.stride[2], type_index(p) == 0};
}

}  // namespace

int64_t states_per_batch(const ChunkStageProblem& p) noexcept {
  if (p.rows.B == 1 || !present(p.h)) return 1;
  const int64_t batch = p.h.stride[0], chunk = p.h.stride[1];
  return chunk != 0 && batch % chunk == 0 ? batch / chunk : 0;
}

core::DeltaRuleProblem as_linear_attention(const ChunkStageProblem& p) noexcept {
  core::DeltaRuleProblem out;
  out.rows = p.rows;
  out.H = p.H, out.HV = p.HV, out.K = p.K, out.V = p.V, out.r = p.r;
  out.q = p.q, out.k = p.k, out.v = p.values, out.o = p.o;
  out.gate = by_group(present(p.g_cumsum) ? p.g_cumsum : p.gate, p.r);
  out.state = p.state;
  out.scale = p.scale;
  out.head_map = p.head_map;
  out.rule = SLUICE_RULE_LINEAR_ATTENTION;
  return out;
}

device::PrefillParams lower_linear_stage(const ChunkStageProblem& p,
                                         const device::CutRequest& split) noexcept {
  device::PrefillParams out = lower_fused(as_linear_attention(p), split);
  if (present(p.g_cumsum)) out.sum_chunks = static_cast<int32_t>(p.C / 64);
  return out;
}

chunk_o::Tiles lower_output_tiles(const ChunkStageProblem& p) noexcept {
  return {token_tensor(p.q), token_tensor(p.k), token_tensor(p.values), states_tensor(p),
          token_tensor(p.o)};
}

chunk_h::Tiles lower_state_tiles(const ChunkStageProblem& p) noexcept {
  return {token_tensor(p.k), token_tensor(p.w), token_tensor(p.values),
          present(p.v_new) ? token_tensor(p.v_new) : tile::TokenTensor{}, states_tensor(p)};
}

bool choose_hopper(const ChunkStageProblem& p, const Gpu& gpu, const Environment& wish,
                   StageChoice* choice) noexcept {
  if (gpu.capability != kHopperCapability || wish.kernel == KernelOverride::kGeneric) return false;
  if (p.stage == SLUICE_STAGE_CHUNK_H) return choose_states(p, choice);
  return present(p.h) ? choose_outputs(p, choice) : choose_linear(p, gpu, wish, choice);
}

}  // namespace sluice::cuda
