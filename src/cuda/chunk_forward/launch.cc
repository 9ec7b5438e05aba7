// Encodes tensor maps and launches the passes of a prefill.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/chunk_forward/cut.h"
#include "cuda/kernels/chunk_forward/instances.h"
#include "cuda/kernels/chunk_forward/prepared.h"
#include "cuda/kernels/linear_attention/instances.h"

namespace sluice::cuda::prefill {

using device::CutRequest, device::CutRule, device::Instance, device::SegmentHeader;

namespace {

bool encode_maps(PrefillParams& p, const MappedTensors& tensors) noexcept {
  p.o_data = tensors.o.data;
  p.o_batch_stride = tensors.o.batch_stride;
  p.o_token_stride = tensors.o.token_stride;
  p.o_head_stride = tensors.o.head_stride;
  const auto k_blocks = static_cast<uint32_t>(p.K) / 64;
  return tile::encode_token_map(&p.q, tensors.q, 64, k_blocks) &&
         tile::encode_token_map(&p.k, tensors.k, 64, k_blocks) &&
         tile::encode_token_map(&p.o, tensors.o, 64, 1);
}

/// v, whose boxes are as wide as a work item.
bool encode_v(PrefillParams& p, const MappedTensors& tensors, int columns) noexcept {
  return tile::encode_token_map(&p.v, tensors.v, 64, static_cast<uint32_t>(columns) / 64);
}

using GetPasses = const chunk_forward::PassInstances& (*)() noexcept;
/// By dtype, K and columns of a work item: bfloat16 first, smaller ones first; as all of these.
constexpr GetPasses kGated[2][2][2] = {
    {{chunk_forward::bf16_k64_v64, chunk_forward::bf16_k64_v128},
     {chunk_forward::bf16_k128_v64, chunk_forward::bf16_k128_v128}},
    {{chunk_forward::fp16_k64_v64, chunk_forward::fp16_k64_v128},
     {chunk_forward::fp16_k128_v64, chunk_forward::fp16_k128_v128}}};

using GetLinear = const linear_attention::PassInstances& (*)() noexcept;
constexpr GetLinear kLinear[2][2] = {{linear_attention::bf16_k64, linear_attention::bf16_k128},
                                     {linear_attention::fp16_k64, linear_attention::fp16_k128}};
using GetByK = const linear_attention::InstancesByK& (*)() noexcept;
constexpr GetByK kClusters[2] = {linear_attention::bf16_cluster, linear_attention::fp16_cluster};
constexpr GetByK kPrefixes[2] = {linear_attention::bf16_prefix, linear_attention::fp16_prefix};

using GetKey = const chunk_forward::KeyInstances& (*)() noexcept;
constexpr GetKey kKey[2][2] = {{chunk_forward::bf16_key_k64, chunk_forward::bf16_key_k128},
                               {chunk_forward::fp16_key_k64, chunk_forward::fp16_key_k128}};
using GetPreparations = const device::InstancesBySize& (*)() noexcept;
constexpr GetPreparations kPreparations[2] = {chunk_forward::bf16_key_preparation,
                                              chunk_forward::fp16_key_preparation};

int type_of(const MappedTensors& tensors) noexcept { return tensors.q.is_bf16 ? 0 : 1; }

/// A pass with items of so many columns: the main one, or the transition pass, and the main pass
/// behind one that had first segments.
const Instance& pass_instance(const PrefillParams& p, const MappedTensors& tensors, int columns,
                              bool transition) {
  const int type = type_of(tensors), of_k = p.K / 128, wide = columns / 128;
  const auto choose = [&](const auto& passes) -> const auto& {
    return transition ? passes.transition : passes.main;
  };
  if (p.has_key_gates()) return choose(kKey[type][of_k]())[p.key.delta][wide];
  if (p.linear) return choose(kLinear[type][of_k]())[wide];
  return choose(kGated[type][of_k][wide]())[tensors.l2norm];
}

/// The passes of one call. Each of them may begin while the one before it ends, but for the first,
/// which waits for whatever the caller has enqueued.
struct Passes {
  PrefillParams params;
  const MappedTensors& tensors;
  Launcher& launcher;
  bool follows = false;

  const CutRequest& cut() const noexcept { return params.segments.cut; }

  void launch(const Instance& instance, GridSize grid, unsigned cluster = 1) noexcept {
    LaunchShape shape{grid, instance.threads, instance.shared_bytes, cluster, follows};
    launcher(instance.kernel, shape, params);
    follows = true;
  }
  /// Kernels that are told more: where a summary goes, or where rows of q and k lie.
  template <class Others>
  void launch_with(const Instance& instance, GridSize grid, const Others& others) noexcept {
    launcher(instance.kernel, {grid, instance.threads, instance.shared_bytes, 1, follows}, params,
             others);
    follows = true;
  }
  /// At most one CTA a multiprocessor.
  void launch_persistent(const Instance& instance, int64_t items) noexcept {
    launch(instance, grid_of(items, cut().multiprocessors));
  }
  void encode(bool encoded) noexcept {
    if (!encoded) launcher.note_invalid();
  }
};

/// The planner; of equal segments, what clears the counters that horizons need.
void launch_planner(Passes& pass) noexcept {
  if (pass.cut().rule != CutRule::kEqual) {
    pass.launch(chunk_forward::planner(), {1});
  } else if (pass.cut().may_forget) {
    pass.launcher.clear(pass.params.segments.header, sizeof(SegmentHeader));
  }
}

device::TokenRows rows_of(const tile::TokenTensor& t) noexcept {
  const auto number = t.is_bf16 ? device::Number::kBfloat16 : device::Number::kFloat16;
  return {t.data, t.batch_stride, t.token_stride, t.head_stride, number};
}

/// What passes read of tokens in place of what was given. WHY after the planner: as records.
void prepare_tokens(Passes& pass) noexcept {
  PrefillParams& p = pass.params;
  if (!p.prepared.exists() || p.T == 0) return;
  const tile::TokenTensor& q = pass.tensors.q;
  pass.launch_with(chunk_forward::token_preparation(q.is_bf16, p.K),
                   grid_of(chunk_forward::prepared_items(p)),
                   chunk_forward::KeyRows{rows_of(q), rows_of(pass.tensors.k)});
  chunk_forward::read_prepared(&p);
}

/// The records of all chunks and heads. WHY after the planner: passes wait for the one before them
/// alone, and the planner waits for none.
void launch_preparation(Passes& pass) noexcept {
  const PrefillParams& p = pass.params;
  const int64_t records = device::key_records(p.N, p.T, p.cu_seqlens.data != nullptr) * p.HV,
                most = int64_t{pass.cut().multiprocessors} *
                       chunk_forward::key_preparations(pass.tensors.q.is_bf16);
  pass.launch(kPreparations[type_of(pass.tensors)]()[p.K / 128][pass.tensors.l2norm],
              grid_of(records, most));
}

/// N and M, and the first segments where these lead.
void launch_transitions(Passes& pass, int64_t pairs) noexcept {
  PrefillParams& p = pass.params;
  const int columns = pass.cut().transition_columns;
  const int64_t leading = device::leading_items(pass.cut(), p.N * p.HV, p.V);
  pass.encode(encode_v(p, pass.tensors, columns));
  if (leading > 0) p.end_ticket = static_cast<uint32_t>(leading);
  pass.launch_persistent(pass_instance(p, pass.tensors, columns, true),
                         leading + pairs * ((p.V + (p.linear ? 0 : p.K)) / columns));
  if (leading > 0) {
    p.first_ticket = static_cast<uint32_t>(leading);
    p.end_ticket = ~uint32_t{0};
  }
}

void launch_join(Passes& pass) noexcept {
  /// Most CTAs of a join of linear attention, which are small.
  constexpr int64_t kMostJoins = 8192;
  const PrefillParams& p = pass.params;
  const int64_t heads = std::min<int64_t>(pass.cut().most_boundaries, p.N) * p.HV;
  if (!p.linear) {
    const int columns = join_columns(pass.cut(), int64_t{pass.cut().long_sequences} * p.HV, p.V);
    return pass.launch_persistent(chunk_forward::join(p.K, columns), heads * (p.V / columns));
  }
  const Instance& join = linear_attention::join();
  const int64_t joins = heads * (p.K * p.V / (4 * int64_t{join.threads}));
  pass.launch(join, grid_of(joins, kMostJoins));
}

/// What runs between planner and main pass.
void launch_segments(Passes& pass) noexcept {
  const int64_t pairs = int64_t{pass.cut().most_boundaries} * pass.params.HV;
  if (pass.cut().may_forget) {
    const Instance& horizon =
        pass.params.has_key_gates() ? chunk_forward::key_horizon() : chunk_forward::horizon();
    const int64_t warps = horizon.threads / 32;
    pass.launch(horizon, grid_of((pairs + warps - 1) / warps));
  }
  launch_transitions(pass, pairs);
  launch_join(pass);
}

/// The main pass with items of so many columns.
void launch_main(Passes& pass, int columns) noexcept {
  const PrefillParams& p = pass.params;
  const bool may_cut = pass.cut().rule != CutRule::kWhole && p.T > 0;
  const int64_t items = int64_t{p.N} * p.HV * (p.V / columns), most = pass.cut().multiprocessors;
  if (p.T > 0) pass.encode(encode_v(pass.params, pass.tensors, columns));
  const bool leads = device::leading_items(pass.cut(), p.N * p.HV, p.V) > 0;
  pass.launch_persistent(pass_instance(p, pass.tensors, columns, leads), may_cut ? most : items);
}

/// Whole sequences of equal length, the last round of them in items of half as many columns.
void launch_halved(Passes& pass) noexcept {
  PrefillParams& p = pass.params;
  const int64_t items = int64_t{p.N} * p.HV * (p.V / 128), most = pass.cut().multiprocessors,
                whole = items / most * most;
  p.end_ticket = static_cast<uint32_t>(whole);
  launch_main(pass, 128);
  p.first_ticket = static_cast<uint32_t>(2 * whole);
  p.end_ticket = ~uint32_t{0};
  pass.encode(encode_v(p, pass.tensors, 64));
  pass.launch_persistent(pass_instance(p, pass.tensors, 64, false), 2 * (items - whole));
}

/// The one launch of CutRule::kCluster.
void launch_clusters(Passes& pass) noexcept {
  const PrefillParams& p = pass.params;
  const int32_t ctas = pass.cut().cluster_ctas;
  pass.encode(encode_v(pass.params, pass.tensors, 128));
  pass.launch(kClusters[type_of(pass.tensors)]()[p.K / 128],
              grid_of(int64_t{p.N} * p.HV * (p.V / 128) * ctas), static_cast<unsigned>(ctas));
}

/// The one launch of CutRule::kPrefix.
void launch_prefix(Passes& pass) noexcept {
  const PrefillParams& p = pass.params;
  const int64_t tokens = int64_t{pass.cut().prefix_blocks} * 128;
  pass.encode(encode_v(pass.params, pass.tensors, 128));
  pass.launch(kPrefixes[type_of(pass.tensors)]()[p.K / 128],
              {static_cast<unsigned>(p.HV * (p.V / 128)),
               static_cast<unsigned>((p.T + tokens - 1) / tokens), static_cast<unsigned>(p.N)});
}

/// Of cut sequences, and of summaries.
void load_joins(KernelLoader& load) noexcept {
  for (const int K : {64, 128}) {
    for (const int columns : chunk_forward::kJoinColumns) load(chunk_forward::join(K, columns));
    load(chunk_forward::summary_join(K));
  }
}

}  // namespace

int resident_clusters(int ctas, int device) noexcept {
  const Instance& instance = linear_attention::bf16_cluster()[1];
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
      grant_shared(instance.kernel, instance.shared_bytes, device) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, instance.kernel, &config) == cudaSuccess;
  if (found) return clusters;
  cudaGetLastError();
  return 0;
}

int load_gated_delta() noexcept {
  using namespace chunk_forward;
  KernelLoader load;
  load_joins(load);
  load(planner(), horizon(), summary_planner(false));
  for (const bool is_bf16 : {true, false}) {
    for (const int K : {64, 128}) load(token_preparation(is_bf16, K));
  }
  for (const auto& of_type : kGated) {
    for (const auto& of_k : of_type) {
      for (const GetPasses get : of_k) load(get().main, get().transition);
    }
  }
  return load.error();
}

int load_key_gates() noexcept {
  using namespace chunk_forward;
  KernelLoader load;
  load_joins(load);
  load(planner(), key_horizon(), summary_planner(true));
  for (const int type : {0, 1}) {
    load(kPreparations[type]());
    for (const GetKey get : kKey[type]) load(get().main, get().transition);
  }
  return load.error();
}

int load_linear_attention() noexcept {
  KernelLoader load;
  load(chunk_forward::planner(), linear_attention::join());
  for (const int type : {0, 1}) {
    for (const GetLinear get : kLinear[type]) load(get().main, get().transition);
    load(kClusters[type](), kPrefixes[type]());
  }
  return load.error();
}

void launch(PrefillParams params, const MappedTensors& tensors, void* workspace,
            Launcher& launcher) noexcept {
  Passes pass{params, tensors, launcher};
  PrefillParams& p = pass.params;
  const CutRequest& cut = pass.cut();
  const int64_t items = int64_t{p.N} * p.HV * (p.V / cut.columns);
  if (items == 0) return;
  if (p.T > 0) pass.encode(encode_maps(p, tensors));
  if (cut.rule == CutRule::kCluster) return launch_clusters(pass);
  if (cut.rule == CutRule::kPrefix) return launch_prefix(pass);
  const bool may_cut = cut.rule != CutRule::kWhole && p.T > 0;
  // WHY not for one round of whole sequences: every multiprocessor takes one, in whatever order.
  if (may_cut || (!cut.in_order && items > cut.multiprocessors)) {
    p.segments.place_in(workspace, p.N, p.HV, p.K, p.V);
    launch_planner(pass);
  }
  if (p.has_key_gates() && p.T > 0) launch_preparation(pass);
  prepare_tokens(pass);
  if (may_cut) launch_segments(pass);
  if (cut.halves_tail) return launch_halved(pass);
  launch_main(pass, cut.columns);
  if (cut.may_narrow) launch_main(pass, 64);
}

void launch_summary(PrefillParams params, const MappedTensors& tensors,
                    const chunk_forward::SummaryParams& out, void* workspace,
                    Launcher& launcher) noexcept {
  Passes pass{params, tensors, launcher};
  PrefillParams& p = pass.params;
  const int64_t pairs = int64_t{p.N} * p.HV;
  if (pairs == 0) return;
  p.segments.place_in(workspace, p.N, p.HV, p.K, p.V);
  launcher.clear(p.segments.header, sizeof(SegmentHeader));
  if (p.T > 0) pass.encode(encode_maps(p, tensors));
  if (p.has_key_gates() && p.T > 0) launch_preparation(pass);
  prepare_tokens(pass);
  const Instance& planner = chunk_forward::summary_planner(p.has_key_gates());
  const int64_t warps = planner.threads / 32;
  pass.launch_with(planner, grid_of((pairs + warps - 1) / warps), out);
  if (p.T > 0) launch_transitions(pass, int64_t{pass.cut().most_boundaries} * p.HV);
  const int64_t slices = (p.V + p.K) / chunk_forward::kSummaryColumns;
  pass.launch_with(chunk_forward::summary_join(p.K), grid_of(pairs * slices), out);
}

}  // namespace sluice::cuda::prefill
