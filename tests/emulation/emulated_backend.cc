// Makes the prefill kernel a CUDA backend of its own: CTAs run one after the other on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/backend.hpp"
#include "cuda/chunk_forward/lower.h"
#include "cuda/chunk_forward/rows.h"
#include "cuda/kernels/chunk_forward/horizon.cuh"
#include "cuda/kernels/chunk_forward/join.cuh"
#include "cuda/kernels/chunk_forward/kernel.cuh"
#include "cuda/kernels/chunk_forward/planner.cuh"
#include "cuda/kernels/chunk_forward/prepare_tokens.cuh"
#include "cuda/kernels/chunk_forward/summary.cuh"
#include "cuda/kernels/generic/launch.h"
#include "emulated_backend.hpp"
#include "emulated_operator.hpp"
#include "emulated_passes.hpp"

namespace sluice::cuda::chunk_forward {
[[gnu::weak]] alignas(1024) uint8_t dynamic_shared[emulation::kSharedBytes];
}

namespace sluice::cuda {

uint64_t emulation_seed = 1;
int emulated_multiprocessors = 4;
int emulated_join_columns = 8;
bool emulated_halves = false;
int8_t emulated_lead = 0;
ResidentClusters emulated_clusters{};
CutOverride emulated_split;

namespace {

using chunk_forward::Config, device::PrefillParams, device::CutRule, prefill::MappedTensors;
using prefill_passes::Launches, prefill_passes::kMostCtas;

/// `leading`: CTAs besides those of the persistent kernels.
template <class Io, bool kL2Norm, bool kOutput>
void run_pass(Launches& launch, const PrefillParams& p, int columns, int64_t items,
              int64_t leading = 0) {
  const prefill_passes::Pass other{std::is_same_v<Io, __nv_bfloat16>, kOutput, columns, items};
  if (p.has_key_gates()) return prefill_passes::run_keys(launch, p, other);
  if (p.linear) return prefill_passes::run_linear(launch, p, other);
  const auto pass = [&]<int kK, int kV>(std::integer_sequence<int, kK, kV>) {
    using C = Config<Io, kL2Norm, kK, kV, kOutput>;
    launch(static_cast<unsigned>(leading + std::min<int64_t>(items, kMostCtas)), C::kThreads,
           [&] { chunk_forward::chunk_forward_kernel<C>(p); });
  };
  if (p.K == 128 && columns == 128) pass(std::integer_sequence<int, 128, 128>());
  if (p.K == 128 && columns == 64) pass(std::integer_sequence<int, 128, 64>());
  if (p.K == 64 && columns == 128 && kOutput) pass(std::integer_sequence<int, 64, 128>());
  if (p.K == 64 && columns == 64) pass(std::integer_sequence<int, 64, 64>());
}

void launch_horizons(Launches& launch, const PrefillParams& p) {
  using namespace chunk_forward;
  if (!p.segments.cut.may_forget) return;
  const auto pairs = static_cast<unsigned>(p.segments.cut.most_boundaries * p.HV);
  launch((pairs + kHorizonThreads / 32 - 1) / (kHorizonThreads / 32), kHorizonThreads,
         [&] { p.has_key_gates() ? key_horizon_kernel(p) : horizon_kernel(p); });
}

/// What prepare_tokens() of the launcher does.
template <class Io>
void run_token_preparation(Launches& launch, PrefillParams& p, const MappedTensors& tensors) {
  using namespace chunk_forward;
  if (!p.prepared.exists() || p.T == 0) return;
  const auto rows = [](const tile::TokenTensor& t) {
    return TokenRows{t.data, t.batch_stride, t.token_stride, t.head_stride, {}};
  };
  const KeyRows keys{rows(tensors.q), rows(tensors.k)};
  launch(static_cast<unsigned>(prepared_items(p)), kPreparedThreads, [&] {
    p.K == 128 ? prepare_tokens_kernel<Io, 128>(p, keys) : prepare_tokens_kernel<Io, 64>(p, keys);
  });
  read_prepared(&p);
}

template <int kK>
void launch_join(Launches& launch, const PrefillParams& p) {
  using namespace chunk_forward;
  launch(kMostCtas, kJoinThreads<kK>, [&] {
    if (emulated_join_columns == 8) join_kernel<kK, 8>(p);
    if (emulated_join_columns == 16) join_kernel<kK, 16>(p);
    if (emulated_join_columns == 32) join_kernel<kK, 32>(p);
  });
}

/// Whole sequences, the last of three items in halves.
template <class Io, bool kL2Norm>
void run_halved(Launches& launch, PrefillParams p, const MappedTensors& tensors) {
  constexpr uint32_t kWhole = 2;
  p.segments.cut.halves_tail = true;
  p.v = emulated_map(tensors.v, 64, 128);
  p.end_ticket = kWhole;
  run_pass<Io, kL2Norm, true>(launch, p, 128, kWhole);
  p.v = emulated_map(tensors.v, 64, 64);
  p.first_ticket = 2 * kWhole;
  p.end_ticket = ~uint32_t{0};
  run_pass<Io, kL2Norm, true>(launch, p, 64, 2);
}

/// What the launcher does, with the planner always asked.
template <class Io, bool kL2Norm>
std::string run(PrefillParams p, const MappedTensors& tensors, void* workspace) {
  using namespace chunk_forward;
  Launches launch;
  device::CutRequest& request = p.segments.cut;
  const int64_t items = int64_t{p.N} * p.HV * (p.V / request.columns);
  if (emulated_lead > 0 && request.rule == CutRule::kEqual && request.count > 2 &&
      !request.may_forget && !p.linear && !p.has_key_gates() &&
      request.columns == request.transition_columns) {
    request.lead = emulated_lead;
    p.segments.keep_initial = false;
  }
  if (request.rule != CutRule::kWhole) {
    p.segments.place_in(workspace, p.N, p.HV, p.K, p.V);
    if (request.rule != CutRule::kEqual) launch(1, kPlannerThreads, [&] { planner_kernel(p); });
    if (request.rule == CutRule::kEqual && request.may_forget) *p.segments.header = {};
    if (p.has_key_gates())
      prefill_passes::run_key_preparation(launch, p, tensors.q.is_bf16, kL2Norm);
    run_token_preparation<Io>(launch, p, tensors);
    launch_horizons(launch, p);
    p.v = emulated_map(tensors.v, 64, request.transition_columns);
    const int64_t leading = device::leading_items(request, int64_t{p.N} * p.HV, p.V);
    if (leading > 0) p.end_ticket = static_cast<uint32_t>(leading);
    run_pass<Io, kL2Norm, false>(launch, p, request.transition_columns, kMostCtas, leading);
    p.first_ticket = static_cast<uint32_t>(leading);
    p.end_ticket = ~uint32_t{0};
    if (p.linear) {
      prefill_passes::run_linear_join(launch, p);
    } else {
      p.K == 128 ? launch_join<128>(launch, p) : launch_join<64>(launch, p);
    }
  }
  if (request.rule == CutRule::kWhole) run_token_preparation<Io>(launch, p, tensors);
  if (emulated_halves) {
    run_halved<Io, kL2Norm>(launch, p, tensors);
    return launch.trouble;
  }
  if (p.has_key_gates() && request.rule == CutRule::kWhole)
    prefill_passes::run_key_preparation(launch, p, tensors.q.is_bf16, kL2Norm);
  p.v = emulated_map(tensors.v, 64, request.columns);
  if (device::leading_items(request, int64_t{p.N} * p.HV, p.V) > 0) {
    run_pass<Io, kL2Norm, false>(launch, p, request.columns, items);
    return launch.trouble;
  }
  run_pass<Io, kL2Norm, true>(launch, p, request.columns, items);
  if (request.may_narrow) {
    p.v = emulated_map(tensors.v, 64, 64);
    run_pass<Io, kL2Norm, true>(launch, p, 64, items * (request.columns / 64));
  }
  return launch.trouble;
}

/// What launch_summary() does.
template <class Io, bool kL2Norm>
std::string run_summary(PrefillParams p, const MappedTensors& tensors,
                        const chunk_forward::SummaryParams& out, void* workspace) {
  using namespace chunk_forward;
  Launches launch;
  const auto pairs = static_cast<unsigned>(p.N * p.HV);
  const int columns = p.segments.cut.transition_columns;
  p.segments.place_in(workspace, p.N, p.HV, p.K, p.V);
  *p.segments.header = {};
  if (p.has_key_gates()) prefill_passes::run_key_preparation(launch, p, tensors.q.is_bf16, kL2Norm);
  run_token_preparation<Io>(launch, p, tensors);
  launch((pairs + kHorizonThreads / 32 - 1) / (kHorizonThreads / 32), kHorizonThreads, [&] {
    p.has_key_gates() ? key_summary_planner_kernel(p, out) : summary_planner_kernel(p, out);
  });
  p.v = emulated_map(tensors.v, 64, columns);
  run_pass<Io, kL2Norm, false>(launch, p, columns, kMostCtas);
  launch(pairs * static_cast<unsigned>((p.V + p.K) / kSummaryColumns), device::kAffineThreads,
         [&] { p.K == 128 ? summary_join_kernel<128>(p, out) : summary_join_kernel<64>(p, out); });
  return launch.trouble;
}

/// The maps of the tensors that every pass reads.
void map_rows(PrefillParams& p, const MappedTensors& tensors) {
  p.q = emulated_map(tensors.q, 64, p.K);
  p.k = emulated_map(tensors.k, 64, p.K);
  p.o = emulated_map(tensors.o, 64, 64);
}

void note_trouble(const std::string& trouble, Launcher& launcher) noexcept {
  if (!trouble.empty()) std::fprintf(stderr, "emulation: %s\n", trouble.c_str());
  launcher.note(trouble.empty() ? 0 : 1);
}

}  // namespace

void prefill::launch_summary(PrefillParams p, const MappedTensors& tensors,
                             const chunk_forward::SummaryParams& out, void* workspace,
                             Launcher& launcher) noexcept {
  map_rows(p, tensors);
  const auto run_type = [&]<class Io>(Io) {
    return tensors.l2norm ? run_summary<Io, true>(p, tensors, out, workspace)
                          : run_summary<Io, false>(p, tensors, out, workspace);
  };
  note_trouble(tensors.q.is_bf16 ? run_type(__nv_bfloat16{}) : run_type(__half{}), launcher);
}

void prefill::launch(PrefillParams p, const MappedTensors& tensors, void* workspace,
                     Launcher& launcher) noexcept {
  map_rows(p, tensors);
  p.o_data = tensors.o.data;
  p.o_batch_stride = tensors.o.batch_stride;
  p.o_token_stride = tensors.o.token_stride;
  p.o_head_stride = tensors.o.head_stride;
  const auto run_type = [&]<class Io>(Io) {
    return tensors.l2norm ? run<Io, true>(p, tensors, workspace)
                          : run<Io, false>(p, tensors, workspace);
  };
  const auto trouble = [&] {
    if (p.segments.cut.rule == CutRule::kCluster) return prefill_passes::run_clusters(p, tensors);
    if (p.segments.cut.rule == CutRule::kPrefix) return prefill_passes::run_prefix(p, tensors);
    return tensors.q.is_bf16 ? run_type(__nv_bfloat16{}) : run_type(__half{});
  };
  note_trouble(trouble(), launcher);
}

int prefill::load_gated_delta() noexcept { return 0; }
int prefill::load_linear_attention() noexcept { return 0; }
int prefill::load_key_gates() noexcept { return 0; }

/// The generic kernel is not emulated, and nothing here plans it.
void generic::launch(const GenericParams&, Launcher& launcher) noexcept { launcher.note(1); }
int generic::load_kernels() noexcept { return 0; }

namespace {

Machine machine() noexcept {
  return {0, kHopperCapability, emulated_multiprocessors, emulated_clusters};
}

Status plan(const core::DeltaRuleProblem& p, core::PlanFor purpose, core::Plan* plan) noexcept {
  Environment environment;
  environment.kernel = KernelOverride::kFast;
  environment.cut = emulated_split;
  return plan_by(one_launch_kernels(), p, machine(), environment, purpose, plan);
}

Status run(const core::DeltaRuleProblem& p, const core::Plan& plan, sluice_workspace workspace,
           void*) noexcept {
  const Machine gpu = machine();
  Launcher launcher("chunk_forward", gpu, nullptr);
  launch_one_launch(p, plan, workspace.data, launcher);
  return launcher.status();
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "the one-launch prefill kernel, emulated";
  backend.requirement = "nothing";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = []() noexcept { return true; };
  backend.chunk_forward = {plan, run};
  backend.read_indices = read_indices_in_place;
  return backend;
}

}  // namespace

EmulatedPlan emulate_plan(const core::DeltaRuleProblem& problem,
                          const device::CutRequest& request) {
  using namespace chunk_forward;
  PrefillParams p = lower_prefill(problem, request);
  std::vector<uint8_t> memory(
      device::segment_workspace(p.N, p.HV, p.K, p.V, request.most_boundaries).added + 256, 0xFF);
  const size_t past = (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
  p.segments.place_in(memory.data() + past, p.N, p.HV, p.K, p.V);
  Launches launch;
  launch(1, kPlannerThreads, [&] { planner_kernel(p); });
  launch_horizons(launch, p);
  EmulatedPlan out{launch.trouble, *p.segments.header, {}, {}, {}, {}};
  if (!out.trouble.empty()) return out;
  out.segments.assign(p.segments.segments, p.segments.segments + out.header.segments);
  out.left.assign(p.segments.left, p.segments.left + out.header.boundaries);
  out.horizon.assign(p.segments.horizon,
                     p.segments.horizon + out.header.boundaries * unsigned(p.HV));
  out.transitions.assign(p.segments.transitions, p.segments.transitions + out.header.transitions);
  return out;
}

const core::Backend& emulated_prefill() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

[[gnu::weak]] const core::Backend& backend() noexcept { return emulated_prefill(); }

}  // namespace sluice::cuda
