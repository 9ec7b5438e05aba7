// Runs simple GLA's passes of the emulated prefill backend.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cuda/kernels/linear_attention/cluster.cuh"
#include "cuda/kernels/linear_attention/join.cuh"
#include "cuda/kernels/linear_attention/kernel.cuh"
#include "cuda/kernels/linear_attention/prefix.cuh"
#include "emulated_passes.hpp"

namespace sluice::cuda::prefill_passes {

using device::PrefillParams, prefill::MappedTensors;

namespace {

template <class Io, bool kOutput>
void run_type(Launches& launch, const PrefillParams& p, const Pass& pass) {
  const auto run = [&]<int kK, int kV>(std::integer_sequence<int, kK, kV>) {
    using C = linear_attention::Config<Io, kK, kV, kOutput>;
    launch(pass.ctas(), C::kThreads, [&] { linear_attention::linear_attention_kernel<C>(p); });
  };
  if (p.K == 128 && pass.columns == 128) run(std::integer_sequence<int, 128, 128>());
  if (p.K == 128 && pass.columns == 64) run(std::integer_sequence<int, 128, 64>());
  if (p.K == 64 && pass.columns == 128) run(std::integer_sequence<int, 64, 128>());
  if (p.K == 64 && pass.columns == 64) run(std::integer_sequence<int, 64, 64>());
}

template <class Io, int kK>
std::string run_clusters_of(const PrefillParams& p) {
  using C = linear_attention::Config<Io, kK, 128>;
  emulation::Grid grid;
  grid.cluster = static_cast<unsigned>(p.segments.cut.cluster_ctas);
  grid.ctas = static_cast<unsigned>(p.N * p.HV * (p.V / 128)) * grid.cluster;
  grid.threads = C::kThreads;
  grid.resident = 1;
  grid.shared_bytes = sizeof(linear_attention::ClusterMemory<C>);
  return emulation::run_grid(grid, emulation_seed, [&] { linear_attention::cluster_kernel<C>(p); });
}

template <class Io, int kK>
std::string run_prefix_of(const PrefillParams& p) {
  using C = linear_attention::Config<Io, kK, 128>;
  const int tokens = p.segments.cut.prefix_blocks * 128;
  emulation::Grid grid;
  grid.x = static_cast<unsigned>(p.HV * (p.V / 128));
  grid.y = static_cast<unsigned>((p.T + tokens - 1) / tokens);
  grid.ctas = grid.x * grid.y * static_cast<unsigned>(p.N);
  grid.threads = linear_attention::kPrefixThreads;
  grid.resident = 2;
  grid.shared_bytes = sizeof(linear_attention::PrefixMemory<C>);
  return emulation::run_grid(grid, emulation_seed, [&] { linear_attention::prefix_kernel<C>(p); });
}

}  // namespace

void run_linear(Launches& launch, const PrefillParams& p, const Pass& pass) {
  const auto of = [&]<class Io>(Io) {
    pass.output ? run_type<Io, true>(launch, p, pass) : run_type<Io, false>(launch, p, pass);
  };
  pass.bf16 ? of(__nv_bfloat16{}) : of(__half{});
}

void run_linear_join(Launches& launch, const PrefillParams& p) {
  launch(kMostCtas, linear_attention::kJoinThreads, [&] { linear_attention::join_kernel(p); });
}

std::string run_clusters(PrefillParams p, const MappedTensors& tensors) {
  p.v = emulated_map(tensors.v, 64, 128);
  if (tensors.v.is_bf16) {
    return p.K == 128 ? run_clusters_of<__nv_bfloat16, 128>(p)
                      : run_clusters_of<__nv_bfloat16, 64>(p);
  }
  return p.K == 128 ? run_clusters_of<__half, 128>(p) : run_clusters_of<__half, 64>(p);
}

std::string run_prefix(PrefillParams p, const MappedTensors& tensors) {
  p.v = emulated_map(tensors.v, 64, 128);
  if (tensors.v.is_bf16) {
    return p.K == 128 ? run_prefix_of<__nv_bfloat16, 128>(p) : run_prefix_of<__nv_bfloat16, 64>(p);
  }
  return p.K == 128 ? run_prefix_of<__half, 128>(p) : run_prefix_of<__half, 64>(p);
}

}  // namespace sluice::cuda::prefill_passes
