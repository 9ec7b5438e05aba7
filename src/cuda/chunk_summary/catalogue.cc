// Lists the kernels of chunk_summary: the transition pass of Hopper's prefill, then the generic kernel;
// gradients are chunk_backward's.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/catalogues.h"
#include "cuda/chunk_forward/cut.h"
#include "cuda/chunk_forward/lengths.h"
#include "cuda/chunk_forward/lower.h"
#include "cuda/chunk_forward/rows.h"
#include "cuda/kernels/context/launch.h"
#include "cuda/lower_views.h"
#include "cuda/workspace_layout.h"

namespace sluice::cuda {
namespace {

using core::ChunkBackwardProblem, core::ChunkSummaryProblem, core::DeltaRuleProblem;
using core::Plan, core::PlanFor, core::Tensor;

bool is_reverse(const ChunkSummaryProblem& p) noexcept {
  return p.direction == SLUICE_DIRECTION_REVERSE;
}

/// Whether the rule is run, and not only its gradient.
bool has_maps(const ChunkSummaryProblem& p) noexcept {
  return core::present(p.transition) || !is_reverse(p);
}

/// A refusal of a part, in this operator's name.
Status renamed(const Status& status) noexcept {
  const char* text = status.message;
  while (*text != '\0' && *text != ':') ++text;
  return *status.message == '\0' ? status : Status::failure(status.code, "chunk_summary%s", text);
}

// ------------------------------------------------------------------------- gradients ----

ChunkBackwardProblem gradient_of(const ChunkSummaryProblem& p) noexcept {
  ChunkBackwardProblem b;
  b.forward = p.forward;
  b.forward.op = SLUICE_OP_CHUNK_BACKWARD;
  b.d_o = p.d_o, b.dinitial = p.addend;
  return b;
}

bool has_gradient(const ChunkSummaryProblem& p) noexcept {
  return is_reverse(p) && core::present(p.addend);
}

/// Adds what the gradient needs to a plan, whose parts run one after the other.
Status plan_gradient(const ChunkSummaryProblem& p, const Machine& machine,
                     const Environment& environment, Plan* plan) noexcept {
  if (!has_gradient(p)) return ok_status();
  return renamed(plan_part(chunk_backward_catalogue(), gradient_of(p), machine, environment,
                           PlanFor::kAnyAddress, &plan->workspace_bytes));
}

void launch_gradient(const ChunkSummaryProblem& p, void* workspace, Launcher& launcher) noexcept {
  // Planning has asked for any address.
  if (has_gradient(p)) launch_part(chunk_backward_catalogue(), gradient_of(p), workspace, launcher);
}

context::PieceFlags flags_of(const Tensor& t) noexcept {
  return core::present(t)
             ? context::PieceFlags{static_cast<uint8_t*>(t.data), t.stride[0], t.stride[1]}
             : context::PieceFlags{};
}

// ------------------------------------------------------------------------- segments ----

/// The prefill whose transition pass summarises: nobody reads q and o, of which the tensors are there.
DeltaRuleProblem passes_of(const ChunkSummaryProblem& p) noexcept {
  DeltaRuleProblem rule = p.forward;
  rule.op = SLUICE_OP_CHUNK_FORWARD;
  rule.q = rule.k, rule.o = rule.v;
  return rule;
}

/// Leaves are as long as the segments of SPLIT_LENGTH are by default: by HV alone, so that a piece's
/// bits depend on no other piece.
device::CutRequest leaves_of(const ChunkSummaryProblem& p, const Machine& machine,
                             const CutOverride& environment) noexcept {
  DeltaRuleProblem rule = passes_of(p);
  rule.split = SLUICE_SPLIT_LENGTH, rule.split_value = 0;
  device::CutRequest cut = choose_cut(rule, machine, environment);
  cut.rule = device::CutRule::kLength;
  cut.length = default_leaf(p.forward.HV);
  const int64_t rows = p.forward.rows.B * p.forward.rows.T;
  cut.most_boundaries =
      static_cast<int32_t>(chunk_forward::first_boundary(p.forward.rows.N, rows, cut.length) + 1);
  return cut;
}

const Kernel<DeltaRuleProblem>& passes_kernel(const ChunkSummaryProblem& p) noexcept {
  return one_launch_kernels()[core::present(p.forward.key_gate) ? 2 : 0];
}

Status accept_segments(const ChunkSummaryProblem& p, const Machine& machine) noexcept {
  const DeltaRuleProblem rule = passes_of(p);
  if (has_scalar_factors(rule)) return left_to_others();
  const int64_t chunks = most_chunks(rule) + 2 * p.forward.rows.N;
  // BOUND: numbers of boundaries times heads, and of CTAs, are an int32.
  if (chunks * p.forward.HV * (p.forward.K + p.forward.V) / 16 >= int64_t{1} << 31) {
    return left_to_others();
  }
  return renamed(passes_kernel(p).accepts(rule, machine));
}

Status accept_segment_addresses(const ChunkSummaryProblem& p) noexcept {
  return renamed(passes_kernel(p).accepts_addresses(passes_of(p)));
}

Status plan_segments(const ChunkSummaryProblem& p, const Machine& machine,
                     const Environment& environment, Plan* plan) noexcept {
  plan->kernel = is_reverse(p) && !has_maps(p) ? "cuda.chunk_summary.gradient"
                                               : "cuda.chunk_summary.sm_90a.segments";
  plan->workspace_bytes = 0;
  if (has_maps(p)) {
    const device::CutRequest cut = leaves_of(p, machine, environment.cut);
    const DeltaRuleProblem rule = passes_of(p);
    plan->keep(cut);
    plan->workspace_bytes = prefill_workspace(rule, cut);
  }
  return plan_gradient(p, machine, environment, plan);
}

void launch_segments(const ChunkSummaryProblem& p, const Plan& plan, void* workspace,
                     Launcher& launcher) noexcept {
  if (has_maps(p)) {
    const DeltaRuleProblem rule = passes_of(p);
    const auto cut = plan.kept<device::CutRequest>();
    device::PrefillParams params = lower_prefill(rule, cut);
    place_prepared(rule, cut, workspace, &params);
    chunk_forward::SummaryParams out{};
    out.transition = static_cast<float*>(p.transition.data);
    out.transition_stride = p.transition.stride[0];
    if (!is_reverse(p)) {
      out.addend = static_cast<float*>(p.addend.data), out.addend_stride = p.addend.stride[0];
    }
    const context::PieceFlags flags = flags_of(p.forgotten);
    out.forgotten = flags.data;
    out.forgotten_piece = flags.piece_stride, out.forgotten_head = flags.head_stride;
    out.wanted = indices_of(p.wanted);
    prefill::launch_summary(params, lower_tensors(rule), out, workspace, launcher);
  }
  launch_gradient(p, workspace, launcher);
}

// -------------------------------------------------------------------------- generic ----

/// The generic kernel's problems for N and M, and what they start from, laid out in a workspace.
struct GenericParts {
  DeltaRuleProblem addend, transition;
  context::FillParams fill{};
  size_t bytes = 0;

  GenericParts(const ChunkSummaryProblem& p, void* base) noexcept {
    WorkspaceLayout layout(base);
    const DeltaRuleProblem& f = p.forward;
    const int64_t N = f.rows.N;
    fill.identity = layout.take<float>(f.HV * f.K * f.K);
    fill.zeros = layout.take<float>(f.K);
    fill.addend_slots = layout.take<int32_t>(N);
    fill.transition_slots = layout.take<int32_t>(N);
    fill.identity_slots = layout.take<int32_t>(N);
    // Outputs that nobody reads: one row for all tokens, which all CTAs write at once.
    float* const row = layout.take<float>(std::max(f.K, f.V));
    bytes = layout.bytes();
    fill.wanted = indices_of(p.wanted), fill.forgotten = flags_of(p.forgotten);
    fill.N = N, fill.HV = f.HV, fill.K = f.K;
    addend = transition = f;
    for (DeltaRuleProblem* part : {&addend, &transition}) {
      part->op = SLUICE_OP_CHUNK_FORWARD;
      part->q = f.k;
    }
    addend.o = one_row(f.v, row, f.V, true);
    addend.state.final = p.addend;
    addend.state.read_slots = slots(f.k, fill.addend_slots, N);
    addend.state.write_slots = addend.state.read_slots;
    transition.V = f.K;
    transition.v = one_row(f.v, fill.zeros, f.K, false);
    transition.o = one_row(f.v, row, f.K, true);
    transition.state.initial = p.transition;
    transition.state.initial.data = fill.identity;
    transition.state.initial.shape[0] = 1;
    transition.state.final = p.transition;
    transition.state.read_slots = slots(f.k, fill.identity_slots, N);
    transition.state.write_slots = slots(f.k, fill.transition_slots, N);
  }

 private:
  /// [B,T,HV,columns], all of them one row.
  static Tensor one_row(const Tensor& like, void* data, int64_t columns, bool floats) noexcept {
    Tensor t = like;
    t.data = data;
    t.shape[3] = columns;
    t.stride[0] = t.stride[1] = t.stride[2] = 0, t.stride[3] = 1;
    if (floats) t.dtype = {2, 32};
    return t;
  }
  static Tensor slots(const Tensor& like, int32_t* data, int64_t N) noexcept {
    Tensor t{};
    t.data = data, t.device = like.device, t.dtype = {0, 32};
    t.rank = 1, t.shape[0] = N, t.stride[0] = 1;
    return t;
  }
};

Status accept_generic(const ChunkSummaryProblem& p, const Machine& machine) noexcept {
  return renamed(accepts_generic(p.forward, machine));
}

Status plan_generic_parts(const ChunkSummaryProblem& p, const Machine& machine,
                          const Environment& environment, Plan* plan) noexcept {
  plan->kernel =
      is_reverse(p) && !has_maps(p) ? "cuda.chunk_summary.gradient" : "cuda.chunk_summary.generic";
  plan->workspace_bytes = has_maps(p) ? GenericParts(p, nullptr).bytes : 0;
  return plan_gradient(p, machine, environment, plan);
}

void launch_generic_parts(const ChunkSummaryProblem& p, const Plan& plan, void* workspace,
                          Launcher& launcher) noexcept {
  if (has_maps(p)) {
    const GenericParts parts(p, workspace);
    context::launch_fill(parts.fill, launcher);
    if (core::present(p.addend) && !is_reverse(p)) {
      launch_generic(parts.addend, plan, nullptr, launcher);
    }
    if (core::present(p.transition)) launch_generic(parts.transition, plan, nullptr, launcher);
  }
  launch_gradient(p, workspace, launcher);
}

constexpr Kernel<ChunkSummaryProblem> kCatalogue[] = {
    {"chunk_summary.segments",
     "what chunk_forward.gated_delta and .key_gates take, by their transition pass; gradients by "
     "chunk_backward",
     Tier::kFast, accept_segments, accept_segment_addresses, plan_segments, launch_segments,
     nullptr},
    {"chunk_summary.generic", "every option with K <= 512, compute capability 8.0 or newer",
     Tier::kAny, accept_generic, nullptr, plan_generic_parts, launch_generic_parts,
     [](const Machine&) noexcept { return context::load_kernels(); }},
};

}  // namespace

Catalogue<ChunkSummaryProblem> chunk_summary_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
