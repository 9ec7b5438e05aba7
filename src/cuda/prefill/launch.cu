// SPDX-License-Identifier: Apache-2.0
#include "cuda/prefill/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/chunk_forward/horizon.cuh"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/join.cuh"
#include "cuda/kernels/chunk_forward/plan.cuh"
#include "cuda/kernels/linear_attention/instances.h"

namespace sluice::cuda::prefill {

using device::Instance, device::PlanHeader, device::SplitRequest, device::SplitRule;

namespace {

bool encode_maps(PrefillParams& p, const Tiles& tiles) noexcept {
  p.o_data = tiles.o.data;
  p.o_batch_stride = tiles.o.batch_stride;
  p.o_token_stride = tiles.o.token_stride;
  p.o_head_stride = tiles.o.head_stride;
  const auto k_blocks = static_cast<uint32_t>(p.K) / 64;
  return tile::encode_token_map(&p.q, tiles.q, 64, k_blocks) &&
         tile::encode_token_map(&p.k, tiles.k, 64, k_blocks) &&
         tile::encode_token_map(&p.o, tiles.o, 64, 1);
}

/// v, whose boxes are as wide as a work item.
bool encode_v(PrefillParams& p, const Tiles& tiles, int columns) noexcept {
  return tile::encode_token_map(&p.v, tiles.v, 64, static_cast<uint32_t>(columns) / 64);
}

using GetInstance = const Instance& (*)(bool l2norm) noexcept;
/// By dtype, K and columns of a work item: bfloat16 first, larger ones first.
constexpr GetInstance kInstances[2][2][2] = {
    {{chunk_forward::bf16_k128_v128, chunk_forward::bf16_k128_v64},
     {chunk_forward::bf16_k64_v128, chunk_forward::bf16_k64_v64}},
    {{chunk_forward::fp16_k128_v128, chunk_forward::fp16_k128_v64},
     {chunk_forward::fp16_k64_v128, chunk_forward::fp16_k64_v64}}};
/// By dtype; K and columns: 128 and 128, 128 and 64, 64 and 64.
constexpr GetInstance kTransitions[2][3] = {
    {chunk_forward::bf16_k128_v128_transition, chunk_forward::bf16_k128_v64_transition,
     chunk_forward::bf16_k64_v64_transition},
    {chunk_forward::fp16_k128_v128_transition, chunk_forward::fp16_k128_v64_transition,
     chunk_forward::fp16_k64_v64_transition}};

using GetLinear = const Instance& (*)(int columns) noexcept;
/// Of linear attention, by dtype and K.
constexpr GetLinear kLinear[2][2] = {{linear_attention::bf16_k128, linear_attention::bf16_k64},
                                     {linear_attention::fp16_k128, linear_attention::fp16_k64}};
constexpr GetLinear kLinearTransitions[2][2] = {
    {linear_attention::bf16_k128_transition, linear_attention::bf16_k64_transition},
    {linear_attention::fp16_k128_transition, linear_attention::fp16_k64_transition}};

const Instance& cluster_instance(bool is_bf16, int K) noexcept {
  return is_bf16 ? linear_attention::bf16_cluster(K) : linear_attention::fp16_cluster(K);
}

const Instance& prefix_instance(bool is_bf16, int K) noexcept {
  return is_bf16 ? linear_attention::bf16_prefix(K) : linear_attention::fp16_prefix(K);
}

/// The main pass with items of so many columns.
const Instance& main_instance(const PrefillParams& p, const Tiles& tiles, int columns) {
  const int type = tiles.q.is_bf16 ? 0 : 1, of_k = p.K == 128 ? 0 : 1;
  if (p.linear) return kLinear[type][of_k](columns);
  return kInstances[type][of_k][columns == 128 ? 0 : 1](tiles.l2norm);
}

const Instance& transition_instance(const PrefillParams& p, const Tiles& tiles, int columns) {
  const int type = tiles.q.is_bf16 ? 0 : 1;
  if (p.linear) return kLinearTransitions[type][p.K == 128 ? 0 : 1](columns);
  return kTransitions[type][columns == 128 ? 0 : p.K == 128 ? 1 : 2](tiles.l2norm);
}

/// Lets a kernel have its shared memory. PERF asked of the driver once per GPU, not per launch.
cudaError_t grant_shared(const Instance& instance, int device) noexcept {
  const uint64_t bit = device < 64 ? uint64_t{1} << device : 0;
  if ((instance.granted.load(std::memory_order_relaxed) & bit) != 0) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(instance.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(instance.shared_bytes));
  if (error == cudaSuccess) instance.granted.fetch_or(bit, std::memory_order_relaxed);
  return error;
}

/// A launch that may begin while the one before it ends, with `arguments` = the params.
struct Launcher {
  cudaStream_t stream;
  int device;
  PrefillParams* params;
  bool follows = false;  ///< after another kernel of this call
  unsigned cluster = 1;  ///< CTAs of a cluster, of the only kernel of a call

  cudaError_t operator()(const void* kernel, dim3 grid, unsigned threads, size_t shared) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    if (cluster > 1) {
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = cluster;
      attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = follows || cluster > 1 ? 1 : 0;
    follows = true;
    void* arguments[] = {params};
    return cudaLaunchKernelExC(&config, kernel, arguments);
  }

  cudaError_t operator()(const Instance& instance, dim3 grid) {
    const cudaError_t error = grant_shared(instance, device);
    if (error != cudaSuccess) return error;
    return (*this)(instance.kernel, grid, instance.threads, instance.shared_bytes);
  }
};

template <int kK>
const Instance& join_instance() noexcept {
  static const Instance instance{reinterpret_cast<const void*>(&chunk_forward::join_kernel<kK>),
                                 sizeof(chunk_forward::JoinMemory<kK>),
                                 chunk_forward::kJoinThreads<kK>};
  return instance;
}

/// The planner; of equal segments, what clears the counters that horizons need.
cudaError_t launch_plan(Launcher& launch, const PrefillParams& p) {
  const SplitRequest& request = p.split.request;
  if (request.rule != SplitRule::kEven) {
    return launch(reinterpret_cast<const void*>(&chunk_forward::plan_kernel), dim3(1),
                  chunk_forward::kPlanThreads, sizeof(chunk_forward::PlanMemory));
  }
  if (!request.may_forget) return cudaSuccess;
  return cudaMemsetAsync(p.split.header, 0, sizeof(PlanHeader), launch.stream);
}

/// Most CTAs of a join of linear attention, which are small.
constexpr int64_t kMostJoins = 8192;

/// The passes between planner and main pass.
cudaError_t launch_passes(Launcher& launch, PrefillParams& p, const Tiles& tiles) {
  const SplitRequest& request = p.split.request;
  const int64_t pairs = int64_t{request.most_boundaries} * p.HV;
  constexpr int kWarps = chunk_forward::kHorizonThreads / 32;
  cudaError_t error = cudaSuccess;
  if (request.may_forget) {
    error = launch(reinterpret_cast<const void*>(&chunk_forward::horizon_kernel),
                   dim3(static_cast<unsigned>((pairs + kWarps - 1) / kWarps)),
                   chunk_forward::kHorizonThreads, 0);
  }
  if (error != cudaSuccess) return error;
  const int columns = request.transition_columns;
  if (!encode_v(p, tiles, columns)) return cudaErrorInvalidValue;
  const int64_t items = pairs * ((p.V + (request.scalar_factors ? 0 : p.K)) / columns);
  error = launch(transition_instance(p, tiles, columns),
                 dim3(static_cast<unsigned>(std::min<int64_t>(items, request.multiprocessors))));
  if (error != cudaSuccess) return error;
  const int64_t chains = std::min<int64_t>(request.most_boundaries, p.N);
  if (p.linear) {
    const Instance& join = linear_attention::join();
    const int64_t joins = chains * p.HV * (p.K * p.V / (4 * int64_t{join.threads}));
    return launch(join.kernel, dim3(static_cast<unsigned>(std::min<int64_t>(joins, kMostJoins))),
                  join.threads, 0);
  }
  const int64_t joins = chains * p.HV * (p.V / chunk_forward::kJoinColumns);
  return launch(p.K == 128 ? join_instance<128>() : join_instance<64>(),
                dim3(static_cast<unsigned>(std::min<int64_t>(joins, request.multiprocessors))));
}

/// The main pass with items of so many columns.
cudaError_t launch_main(Launcher& launch, PrefillParams& p, const Tiles& tiles, int columns) {
  const SplitRequest& request = p.split.request;
  const int64_t items = int64_t{p.N} * p.HV * (p.V / columns), most = request.multiprocessors;
  const bool may_cut = request.rule != SplitRule::kWhole && p.T > 0;
  if (p.T > 0 && !encode_v(p, tiles, columns)) return cudaErrorInvalidValue;
  return launch(main_instance(p, tiles, columns),
                dim3(static_cast<unsigned>(may_cut ? most : std::min(items, most))));
}

/// The one launch of SplitRule::kCluster.
cudaError_t launch_clusters(Launcher& launch, PrefillParams& p, const Tiles& tiles) {
  const int64_t ctas = int64_t{p.N} * p.HV * (p.V / 128) * p.split.request.value;
  if (!encode_v(p, tiles, 128)) return cudaErrorInvalidValue;
  launch.cluster = static_cast<unsigned>(p.split.request.value);
  return launch(cluster_instance(tiles.q.is_bf16, p.K), dim3(static_cast<unsigned>(ctas)));
}

/// The one launch of SplitRule::kPrefix.
cudaError_t launch_prefix(Launcher& launch, PrefillParams& p, const Tiles& tiles) {
  const int64_t tokens = int64_t{p.split.request.value} * 128, parts = (p.T + tokens - 1) / tokens;
  if (!encode_v(p, tiles, 128)) return cudaErrorInvalidValue;
  return launch(prefix_instance(tiles.q.is_bf16, p.K),
                dim3(static_cast<unsigned>(p.HV * (p.V / 128)), static_cast<unsigned>(parts),
                     static_cast<unsigned>(p.N)));
}

}  // namespace

int resident_clusters(int ctas, int device) noexcept {
  const Instance& instance = cluster_instance(true, 128);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(ctas);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(instance.threads);
  config.dynamicSmemBytes = instance.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const bool found =
      grant_shared(instance, device) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, instance.kernel, &config) == cudaSuccess;
  if (found) return clusters;
  cudaGetLastError();
  return 0;
}

int load_kernels() noexcept {
  cudaError_t error = cudaSuccess;
  const auto load = [&](const void* kernel) {
    cudaFuncAttributes attributes{};
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  };
  const auto load_both = [&](GetInstance get) {
    load(get(false).kernel);
    load(get(true).kernel);
  };
  for (const auto& of_type : kInstances) {
    for (const auto& of_k : of_type) {
      for (const GetInstance get : of_k) load_both(get);
    }
  }
  for (const auto& of_type : kTransitions) {
    for (const GetInstance get : of_type) load_both(get);
  }
  for (const auto* of_type : {kLinear, kLinearTransitions}) {
    for (int i = 0; i < 4; ++i) {
      load(of_type[i / 2][i % 2](128).kernel);
      load(of_type[i / 2][i % 2](64).kernel);
    }
  }
  load(linear_attention::join().kernel);
  for (const bool is_bf16 : {false, true}) {
    for (const int K : {64, 128}) {
      load(cluster_instance(is_bf16, K).kernel);
      load(prefix_instance(is_bf16, K).kernel);
    }
  }
  load(join_instance<64>().kernel);
  load(join_instance<128>().kernel);
  load(reinterpret_cast<const void*>(&chunk_forward::plan_kernel));
  load(reinterpret_cast<const void*>(&chunk_forward::horizon_kernel));
  return error;
}

int launch(PrefillParams params, const Tiles& tiles, void* workspace, int device,
           void* stream) noexcept {
  SplitRequest& request = params.split.request;
  const int64_t items = int64_t{params.N} * params.HV * (params.V / request.columns);
  if (items == 0) return cudaSuccess;
  if (params.T > 0 && !encode_maps(params, tiles)) return cudaErrorInvalidValue;
  Launcher launcher{static_cast<cudaStream_t>(stream), device, &params};
  if (request.rule == SplitRule::kCluster) return launch_clusters(launcher, params, tiles);
  if (request.rule == SplitRule::kPrefix) return launch_prefix(launcher, params, tiles);
  const bool may_cut = request.rule != SplitRule::kWhole && params.T > 0;
  // WHY not for one round of whole sequences: every multiprocessor takes one, in whatever order.
  const bool planned = may_cut || (!request.in_order && items > request.multiprocessors);
  cudaError_t error = cudaSuccess;
  if (planned) {
    params.split.lie_in(workspace, params.N, params.HV, params.K, params.V);
    error = launch_plan(launcher, params);
  }
  if (error == cudaSuccess && may_cut) error = launch_passes(launcher, params, tiles);
  if (error != cudaSuccess) return error;
  error = launch_main(launcher, params, tiles, request.columns);
  if (error == cudaSuccess && request.or_narrow) {
    error = launch_main(launcher, params, tiles, 64);
  }
  return error != cudaSuccess ? error : cudaPeekAtLastError();
}

}  // namespace sluice::cuda::prefill
