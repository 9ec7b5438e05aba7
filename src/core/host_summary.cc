// Lays out and runs the parts of chunk_summary in host memory.
// SPDX-License-Identifier: Apache-2.0
#include "core/host_summary.hpp"

#include <algorithm>
#include <cmath>

#include "core/host_access.hpp"

namespace sluice::core {
namespace {

/// The parts of a call with their memory, laid out from a base address.
class Parts {
 public:
  // WHY no null base: views without data count as absent.
  static constexpr uintptr_t kAnyBase = 256;

  Parts(const ChunkSummaryProblem& problem, uintptr_t base) noexcept
      : problem_(problem), next_(base) {
    const DeltaRuleProblem& p = problem.forward;
    const int64_t B = p.rows.B, T = p.rows.T, N = p.rows.N;
    void* const rows = take(B * T * p.HV * std::max(p.K, p.V) * 4);
    for (Tensor* slots : {&slots_, &from_identity_}) {
      *slots = dense_view(take(N * 4), kInt32, {N});
    }
    identity_ = dense_view(take(p.HV * p.K * p.K * 4), kFloat32, {1, p.HV, p.K, p.K});
    zeros_ = dense_view(take(p.K * 4), p.k.dtype, {B, T, p.HV, p.K});
    for (int axis = 0; axis < 3; ++axis) zeros_.stride[axis] = 0;

    addend = transition = p;
    addend.o = dense_view(rows, kFloat32, {B, T, p.HV, p.V});
    addend.state.final = problem.addend;
    addend.state.read_slots = addend.state.write_slots = slots_;
    transition.o = dense_view(rows, kFloat32, {B, T, p.HV, p.K});
    transition.v = zeros_, transition.V = p.K;
    transition.state.initial = identity_, transition.state.final = problem.transition;
    transition.state.read_slots = from_identity_, transition.state.write_slots = slots_;

    gradient.forward = p;
    gradient.forward.op = SLUICE_OP_CHUNK_BACKWARD;
    gradient.d_o = problem.d_o, gradient.dinitial = problem.addend;
  }

  /// Slots of the pieces that want one of the two, -1 of others, and what M starts from.
  void fill(int64_t bit) const noexcept {
    const DeltaRuleProblem& p = problem_.forward;
    for (int64_t n = 0; n < p.rows.N; ++n) {
      store_index(address(slots_, n), kInt32, wants(n, bit) ? n : -1);
      store_index(address(from_identity_, n), kInt32, wants(n, bit) ? 0 : -1);
    }
    std::fill_n(static_cast<float*>(identity_.data), p.HV * p.K * p.K, 0.0f);
    for (int64_t i = 0; i < p.HV * p.K; ++i) {
      static_cast<float*>(identity_.data)[i * p.K + i % p.K] = 1.0f;
    }
    std::memset(zeros_.data, 0, static_cast<size_t>(p.K) * 4);
  }

  bool wants(int64_t n, int64_t bit) const noexcept {
    return !present(problem_.wanted) || (slot_at(problem_.wanted, n, 0) & bit) != 0;
  }

  bool has_addend() const noexcept {
    return present(problem_.addend) && problem_.direction == SLUICE_DIRECTION_FORWARD;
  }
  bool has_gradient() const noexcept {
    return present(problem_.addend) && problem_.direction == SLUICE_DIRECTION_REVERSE;
  }
  bool has_transition() const noexcept { return present(problem_.transition); }

  uintptr_t end() const noexcept { return next_; }

  DeltaRuleProblem addend, transition;
  ChunkBackwardProblem gradient;

 private:
  void* take(int64_t bytes) noexcept {
    const uintptr_t at = next_;
    next_ += (static_cast<uintptr_t>(bytes) + 255) / 256 * 256;
    return reinterpret_cast<void*>(at);
  }

  const ChunkSummaryProblem& problem_;
  uintptr_t next_;
  Tensor slots_, from_identity_, identity_, zeros_;
};

/// A part's refusal in this operator's name.
Status renamed(const Status& status) noexcept {
  const char* const text = std::strchr(status.message, ':');
  return Status::failure(status.code, "chunk_summary%s", text == nullptr ? "" : text);
}

template <class Problem>
Status plan_part(const Operator<Problem>& part, const Problem& problem, Plan* plan) noexcept {
  Plan own;
  const Status status = part.plan(problem, PlanFor::kAnyAddress, &own);
  if (!status.ok()) return renamed(status);
  plan->workspace_bytes = std::max(plan->workspace_bytes, own.workspace_bytes);
  return ok_status();
}

template <class Problem>
Status run_part(const Operator<Problem>& part, const Problem& problem,
                sluice_workspace workspace) noexcept {
  Plan plan;
  Status status = part.plan(problem, PlanFor::kCall, &plan);
  if (status.ok()) status = part.run(problem, plan, workspace, nullptr);
  return status.ok() ? status : renamed(status);
}

/// Zeros where what M keeps of a state is below 2^-28 of it: the Frobenius norm bounds it.
void forget(const ChunkSummaryProblem& problem, int64_t n, int64_t h) noexcept {
  constexpr double kForgotten = 0x1p-56;  // of a square
  const int64_t size = problem.forward.K * problem.forward.K;
  auto* const M = static_cast<float*>(address(problem.transition, n, h, 0, 0));
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(M[i]) * static_cast<double>(M[i]);
  const bool forgotten = problem.forward.history != SLUICE_HISTORY_STRICT && sum <= kForgotten;
  if (forgotten) std::fill_n(M, size, 0.0f);
  if (!present(problem.forgotten)) return;
  *static_cast<uint8_t*>(address(problem.forgotten, n, h)) = forgotten ? 1 : 0;
}

}  // namespace

Status plan_host_summary(const Backend& backend, const ChunkSummaryProblem& problem,
                         Plan* plan) noexcept {
  const Parts parts(problem, Parts::kAnyBase);
  plan->workspace_bytes = 0;
  Status status = ok_status();
  if (parts.has_addend()) status = plan_part(backend.chunk_forward, parts.addend, plan);
  if (status.ok() && parts.has_gradient()) {
    status = plan_part(backend.chunk_backward, parts.gradient, plan);
  }
  if (status.ok() && parts.has_transition()) {
    status = plan_part(backend.chunk_forward, parts.transition, plan);
  }
  plan->workspace_bytes += parts.end() - Parts::kAnyBase;
  return status;
}

Status run_host_summary(const Backend& backend, const ChunkSummaryProblem& problem,
                        sluice_workspace workspace) noexcept {
  const Parts parts(problem, reinterpret_cast<uintptr_t>(workspace.data));
  const size_t used = parts.end() - reinterpret_cast<uintptr_t>(workspace.data);
  const sluice_workspace rest{reinterpret_cast<void*>(parts.end()), workspace.size - used};
  Status status = ok_status();
  if (parts.has_addend()) {
    parts.fill(kWantsAddend);
    status = run_part(backend.chunk_forward, parts.addend, rest);
  }
  if (status.ok() && parts.has_gradient()) {
    status = run_part(backend.chunk_backward, parts.gradient, rest);
  }
  if (!status.ok() || !parts.has_transition()) return status;
  parts.fill(kWantsTransition);
  status = run_part(backend.chunk_forward, parts.transition, rest);
  for (int64_t n = 0; n < problem.forward.rows.N && status.ok(); ++n) {
    if (!parts.wants(n, kWantsTransition)) continue;
    for (int64_t h = 0; h < problem.forward.HV; ++h) forget(problem, n, h);
  }
  return status;
}

}  // namespace sluice::core
