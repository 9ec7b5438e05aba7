// Lowers a validated stage to the parameters of its kernels and to the tensors that they map.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_stage/lower.h"

#include "cuda/chunk_forward/lower.h"

namespace sluice::cuda {
namespace {

using core::ChunkStageProblem, core::present, core::Tensor;

constexpr int64_t kMapLimit = int64_t{1} << 31;  ///< of what a tensor map counts

tile::TokenTensor mapped_rows(const Tensor& t) noexcept {
  return present(t) ? token_tensor(t) : tile::TokenTensor{};
}

/// h of all batch entries as rows of states.
tile::TokenTensor mapped_states(const ChunkStageProblem& p) noexcept {
  if (!present(p.h)) return {};
  const Tensor& h = p.h;
  const int64_t states = (p.rows.B - 1) * states_per_batch(p) + h.shape[1];
  const bool is_bf16 = number_type(p.k.dtype) == device::Number::kBfloat16;
  return {h.data, states, p.K, p.HV, p.V, h.stride[1], p.V, h.stride[2], is_bf16};
}

/// [B,T,HV] as [B,T,HV/r,r].
Tensor by_group(Tensor t, int64_t r) noexcept {
  if (!present(t)) return t;
  t.rank = 4;
  t.shape[3] = r, t.stride[3] = t.stride[2];
  t.shape[2] /= r, t.stride[2] *= r;
  return t;
}

}  // namespace

device::StageParams lower_stage(const ChunkStageProblem& p) noexcept {
  device::StageParams out = lower_stage_sizes(p, p.C);
  out.q = rows_of(p.q), out.k = rows_of(p.k), out.values = rows_of(p.values);
  const bool writes_sums = p.stage == SLUICE_STAGE_CUMSUM_KKT;
  out.gate = rows_of(p.gate);
  (writes_sums ? out.sums : out.g_cumsum) = rows_of(p.g_cumsum);
  out.beta = rows_of(p.beta);
  out.A = rows_of(p.A), out.A_inverse = rows_of(p.A_inverse);
  out.w = rows_of(p.w), out.u = rows_of(p.u);
  out.v_new = rows_of(p.v_new), out.o = rows_of(p.o);
  if (present(p.h)) {
    out.h = {p.h.data,      p.h.stride[0],          p.h.stride[1],
             p.h.stride[2], number_type(p.h.dtype), p.h.shape[1]};
  }
  out.state = slots_of(p.state);
  out.reverse = p.direction == SLUICE_DIRECTION_REVERSE;
  out.upper = p.triangle == SLUICE_TRIANGLE_UPPER;
  out.has_gates = present(p.gate) || present(p.g_cumsum);
  out.key_gates = p.key_gates;
  const bool by_channel = p.stage == SLUICE_STAGE_CHUNK_CUMSUM && p.key_gates;
  return by_channel ? as_channel_sums(out) : out;
}

stages::SumGates lower_sum_gates(const ChunkStageProblem& p) noexcept {
  return {form_of_space(p.gates()), vector_of(p.A_log), vector_of(p.dt_bias)};
}

device::StageParams as_channel_sums(device::StageParams p) noexcept {
  p.repeats = p.HV;
  p.gate_repeat = p.gate.head_stride;
  p.sums_repeat = p.g_cumsum.head_stride;
  p.gate.head_stride = p.g_cumsum.head_stride = 1;
  p.HV = p.K;
  return p;
}

chunk_o::MappedTensors lower_output_tensors(const ChunkStageProblem& p) noexcept {
  return {mapped_rows(p.q), mapped_rows(p.k), mapped_rows(p.values), mapped_states(p),
          mapped_rows(p.o)};
}

chunk_h::MappedTensors lower_state_tensors(const ChunkStageProblem& p) noexcept {
  return {mapped_rows(p.k), mapped_rows(p.w), mapped_rows(p.values), mapped_rows(p.v_new),
          mapped_states(p)};
}

int64_t states_per_batch(const ChunkStageProblem& p) noexcept {
  if (p.rows.B == 1 || !present(p.h)) return 1;
  const int64_t batch = p.h.stride[0], chunk = p.h.stride[1];
  return chunk != 0 && batch % chunk == 0 ? batch / chunk : 0;
}

bool is_mappable(const tile::TokenTensor& rows) noexcept {
  const auto fits = [](int64_t extent, int64_t stride) {
    return extent <= 1 || (stride > 0 && stride < kMapLimit * 128);
  };
  return fits(rows.batch, rows.batch_stride) && fits(rows.tokens, rows.token_stride) &&
         fits(rows.heads, rows.head_stride);
}

bool are_countable(int64_t tokens, int64_t states) noexcept {
  return tokens < kMapLimit - 64 && states < kMapLimit;
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
                                         const device::CutRequest& cut) noexcept {
  device::PrefillParams out = lower_prefill(as_linear_attention(p), cut);
  if (present(p.g_cumsum)) out.sum_chunks = static_cast<int32_t>(p.C / 64);
  return out;
}

}  // namespace sluice::cuda
