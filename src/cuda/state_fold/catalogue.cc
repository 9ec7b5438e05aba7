// Lists the kernel of state_fold and lowers its problem.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/catalogues.h"
#include "cuda/kernels/context/launch.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using core::Plan, core::StateFoldProblem;
using ll = long long;

context::FoldParams lower_fold(const StateFoldProblem& p) noexcept {
  context::FoldParams out{};
  out.transition = static_cast<const float*>(p.transition.data);
  out.addend = static_cast<const float*>(p.addend.data);
  out.transition_stride = p.transition.stride[0], out.addend_stride = p.addend.stride[0];
  if (core::present(p.forgotten)) {
    out.forgotten = {static_cast<uint8_t*>(p.forgotten.data), p.forgotten.stride[0],
                     p.forgotten.stride[1]};
  }
  out.cu_chains = indices_of(p.cu_chains);
  out.route_pieces = indices_of(p.route_pieces), out.route_states = indices_of(p.route_states);
  out.initial = pool_of(p.initial), out.entering = pool_of(p.entering);
  out.final = pool_of(p.final);
  const bool kv = p.layout == SLUICE_STATE_KV;
  out.row_step = kv ? p.V : 1, out.column_step = kv ? 1 : p.K;
  out.P = p.P, out.N = p.N, out.S = p.S;
  out.HV = static_cast<int32_t>(p.HV);
  out.K = static_cast<int32_t>(p.K), out.V = static_cast<int32_t>(p.V);
  out.reverse = p.direction == SLUICE_DIRECTION_REVERSE;
  return out;
}

Status accept(const StateFoldProblem& p, const Machine& machine) noexcept {
  if (const Status s = check_capability("state_fold", machine); !s.ok()) return s;
  const ll columns = p.N * p.HV * p.V;
  // BOUND: CTAs of the grid are an int32.
  const int64_t ctas = p.N * p.HV * ((p.V + 15) / 16);
  if (p.K <= context::kMaxK && ctas < int64_t{1} << 31) return ok_status();
  return Status::failure(Code::kUnsupported,
                         "state_fold: K, chains * HV * V = %lld, %lld, expected at most %lld and "
                         "below 2^35 (CUDA kernels)",
                         static_cast<ll>(p.K), columns, static_cast<ll>(context::kMaxK));
}

Status plan_fold(const StateFoldProblem&, const Machine&, const Environment&, Plan* plan) noexcept {
  plan->kernel = "cuda.state_fold";
  return ok_status();
}

void launch_fold(const StateFoldProblem& p, const Plan&, void*, Launcher& launcher) noexcept {
  if (core::writes_states(p)) context::launch_fold(lower_fold(p), launcher);
}

constexpr Kernel<StateFoldProblem> kCatalogue[] = {
    {"state_fold", "every option, K <= 512, compute capability 8.0 or newer", Tier::kAny, accept,
     nullptr, plan_fold, launch_fold,
     [](const Machine&) noexcept { return context::load_kernels(); }}};

}  // namespace

Catalogue<StateFoldProblem> state_fold_catalogue() noexcept { return kCatalogue; }

}  // namespace sluice::cuda
