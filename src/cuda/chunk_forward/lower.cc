// Lowers prefills and steps view by view, and launches what was planned for them.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/lower.h"

#include <algorithm>
#include <limits>

#include "cuda/chunk_forward/cut.h"
#include "cuda/chunk_forward/lengths.h"
#include "cuda/chunk_forward/rows.h"
#include "cuda/kernels/generic/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using core::present, core::Tensor, core::DeltaRuleProblem;

/// Prefill carries the rounding of alpha over so many tokens; see round_alpha(). WHY not longer: a
/// prefill that goes on from a checkpoint has to give the same bits. Steps carry nothing, so that a
/// call of several tokens gives the bits of as many calls.
constexpr int32_t kPrefillDecaySpan = 64;

/// A pool, and how many slots it has from pad_below on.
device::StatePool state_pool(const Tensor& t, int64_t pad_below, uint64_t* span) noexcept {
  const device::BoundedPool bounded = pool_of(t);
  *span = static_cast<uint64_t>(std::max<int64_t>(bounded.slots - pad_below, 0));
  return bounded.pool;
}

/// What both kernels name alike.
template <class Params>
void lower_shared(const DeltaRuleProblem& p, Params* out) noexcept {
  lower_gates(p, out);
  out->cu_seqlens = indices_of(p.rows.cu_seqlens);
  out->pad_below = p.state.pad_below;
  if (present(p.state.has_initial_state)) {
    out->has_initial_state = static_cast<const uint8_t*>(p.state.has_initial_state.data);
    out->has_initial_stride = p.state.has_initial_state.stride[0];
  }
}

}  // namespace

device::PrefillParams lower_prefill(const DeltaRuleProblem& p,
                                    const device::CutRequest& cut) noexcept {
  device::PrefillParams out{};
  out.segments.cut = cut;
  // First segments that lead have read theirs before the main pass writes any.
  out.segments.keep_initial =
      cut.lead == 0 && present(p.state.initial) && p.state.initial.data == p.state.final.data;
  lower_shared(p, &out);
  out.initial = state_pool(p.state.initial, p.state.pad_below, &out.initial_span);
  if (!present(p.state.initial)) {
    out.initial_span =
        static_cast<uint64_t>(std::numeric_limits<int64_t>::max() - p.state.pad_below);
  }
  out.final = state_pool(p.state.final, p.state.pad_below, &out.final_span);
  out.read_slots = indices_of(p.state.read_slots);
  out.write_slots = indices_of(p.state.write_slots);
  out.state_is_vk = p.state.layout == SLUICE_STATE_VK;
  out.checkpoints = state_pool(p.checkpoints, p.state.pad_below, &out.checkpoint_span);
  if (present(p.checkpoints)) {
    out.checkpoint_slots = indices_of(p.checkpoint_slots);
    out.checkpoint_columns = p.checkpoint_slots.shape[1];
    out.checkpoint_column_stride = p.checkpoint_slots.stride[1];
    out.checkpoint_chunks = p.checkpoint_every / 64;
  }
  out.N = static_cast<int32_t>(p.rows.N);
  out.T = static_cast<int32_t>(p.rows.T);
  out.H = static_cast<int32_t>(p.H);
  out.HV = static_cast<int32_t>(p.HV);
  out.r = static_cast<int32_t>(p.r);
  out.K = static_cast<int32_t>(p.K);
  out.V = static_cast<int32_t>(p.V);
  const bool linear = p.rule == SLUICE_RULE_LINEAR_ATTENTION;
  out.linear = linear && !present(p.key_gate);
  if (present(p.key_gate)) {
    out.key = {rows_of(p.key_gate), form_of_space(p), !linear, nullptr, nullptr};
  }
  return out;
}

void place_prepared(const DeltaRuleProblem& p, const device::CutRequest& cut, void* workspace,
                    device::PrefillParams* params) noexcept {
  uint8_t* const place = static_cast<uint8_t*>(workspace) + prepared_offset(p, cut);
  if (params->has_key_gates()) {
    params->key.records = place;
    params->key.peaks = reinterpret_cast<float*>(
        params->key.records + key_records(p) * p.HV * device::key_record_bytes(p.K));
    return;
  }
  auto* next = reinterpret_cast<float*>(place);
  if (prepares_norms(p)) {
    params->prepared.norms = next;
    next += 2 * p.H * p.rows.B * p.rows.T;
  }
  if (prepares_numbers(p)) params->prepared.numbers = next;
}

prefill::MappedTensors lower_tensors(const DeltaRuleProblem& p) noexcept {
  return {token_tensor(p.q), token_tensor(p.k), token_tensor(p.v), token_tensor(p.o),
          p.qk_norm == SLUICE_QK_NORM_L2};
}

generic::GenericParams lower_generic(const DeltaRuleProblem& p) noexcept {
  generic::GenericParams out{};
  lower_shared(p, &out);
  out.q = rows_of(p.q);
  out.k = rows_of(p.k);
  out.v = rows_of(p.v);
  out.o = rows_of(p.o);
  if (present(p.key_gate)) {
    out.key_gate = rows_of(p.key_gate);
    out.key_form = form_of_space(p);
  }
  out.initial = pool_of(p.state.initial);
  out.final = pool_of(p.state.final);
  out.read_slots = table_of(p.state.read_slots);
  out.write_slots = table_of(p.state.write_slots);
  out.num_accepted = indices_of(p.num_accepted);
  out.checkpoints = pool_of(p.checkpoints);
  out.checkpoint_slots = table_of(p.checkpoint_slots);
  out.checkpoint_every = p.checkpoint_every;
  out.N = p.rows.N;
  out.T = p.rows.T;
  out.max_tokens = p.rows.max_tokens;
  out.H = p.H;
  out.HV = p.HV;
  out.K = p.K;
  out.V = p.V;
  out.r = p.r;
  const bool is_vk = p.state.layout == SLUICE_STATE_VK;
  out.row_step = is_vk ? 1 : p.V;
  out.column_step = is_vk ? p.K : 1;
  out.decay_span = p.op == SLUICE_OP_CHUNK_FORWARD ? kPrefillDecaySpan : 1;
  out.l2norm = p.qk_norm == SLUICE_QK_NORM_L2;
  out.delta_rule = p.rule == SLUICE_RULE_GATED_DELTA;
  out.write_last = p.state_writes == SLUICE_STATE_WRITE_LAST;
  out.write_per_token = p.state_writes == SLUICE_STATE_WRITE_PER_TOKEN;
  return out;
}

void launch_one_launch(const DeltaRuleProblem& p, const core::Plan& plan, void* workspace,
                       Launcher& launcher) noexcept {
  const auto cut = plan.kept<device::CutRequest>();
  device::PrefillParams params = lower_prefill(p, cut);
  place_prepared(p, cut, workspace, &params);
  prefill::launch(params, lower_tensors(p), workspace, launcher);
}

void launch_generic(const DeltaRuleProblem& p, const core::Plan&, void*,
                    Launcher& launcher) noexcept {
  generic::launch(lower_generic(p), launcher);
}

int load_generic(const Machine&) noexcept { return generic::load_kernels(); }

}  // namespace sluice::cuda
