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

using GetKey = const Instance& (*)(bool delta, int columns, bool output) noexcept;
/// With key-wise gates, by dtype and K.
constexpr GetKey kKey[2][2] = {{chunk_forward::bf16_key_k128, chunk_forward::bf16_key_k64},
                               {chunk_forward::fp16_key_k128, chunk_forward::fp16_key_k64}};

const Instance& key_preparation(bool is_bf16, int K, bool l2norm) noexcept {
  return is_bf16 ? chunk_forward::bf16_key_preparation(K, l2norm)
                 : chunk_forward::fp16_key_preparation(K, l2norm);
}

/// The main pass with items of so many columns; see also transition_instance().
const Instance& main_instance(const PrefillParams& p, const MappedTensors& tensors, int columns) {
  const int type = tensors.q.is_bf16 ? 0 : 1, of_k = p.K == 128 ? 0 : 1;
  if (p.has_key_gates()) return kKey[type][of_k](p.key.delta, columns, true);
  if (p.linear) return kLinear[type][of_k](columns);
  return kInstances[type][of_k][columns == 128 ? 0 : 1](tensors.l2norm);
}

/// The transition pass, and the main pass behind one that had first segments.
const Instance& transition_instance(const PrefillParams& p, const MappedTensors& tensors,
                                    int columns) {
  const int type = tensors.q.is_bf16 ? 0 : 1;
  if (p.has_key_gates()) return kKey[type][p.K == 128 ? 0 : 1](p.key.delta, columns, false);
  if (p.linear) return kLinearTransitions[type][p.K == 128 ? 0 : 1](columns);
  return kTransitions[type][columns == 128 ? 0 : p.K == 128 ? 1 : 2](tensors.l2norm);
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
    launch(instance, {static_cast<unsigned>(std::min<int64_t>(items, cut().multiprocessors))});
  }
  void encode(bool encoded) noexcept {
    if (!encoded) launcher.note(cudaErrorInvalidValue);
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
                   {static_cast<unsigned>(chunk_forward::prepared_items(p))},
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
  pass.launch(key_preparation(pass.tensors.q.is_bf16, p.K, pass.tensors.l2norm),
              {static_cast<unsigned>(std::min(records, most))});
}

/// N and M, and the first segments where these lead.
void launch_transitions(Passes& pass, int64_t pairs) noexcept {
  PrefillParams& p = pass.params;
  const int columns = pass.cut().transition_columns;
  const int64_t leading = device::leading_items(pass.cut(), p.N * p.HV, p.V);
  pass.encode(encode_v(p, pass.tensors, columns));
  if (leading > 0) p.end_ticket = static_cast<uint32_t>(leading);
  pass.launch_persistent(transition_instance(p, pass.tensors, columns),
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
  pass.launch(join, {static_cast<unsigned>(std::min(joins, kMostJoins))});
}

/// What runs between planner and main pass.
void launch_segments(Passes& pass) noexcept {
  const int64_t pairs = int64_t{pass.cut().most_boundaries} * pass.params.HV;
  if (pass.cut().may_forget) {
    const Instance& horizon =
        pass.params.has_key_gates() ? chunk_forward::key_horizon() : chunk_forward::horizon();
    const int64_t warps = horizon.threads / 32;
    pass.launch(horizon, {static_cast<unsigned>((pairs + warps - 1) / warps)});
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
  pass.launch_persistent(leads ? transition_instance(p, pass.tensors, columns)
                               : main_instance(p, pass.tensors, columns),
                         may_cut ? most : items);
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
  pass.launch_persistent(main_instance(p, pass.tensors, 64), 2 * (items - whole));
}

/// The one launch of CutRule::kCluster.
void launch_clusters(Passes& pass) noexcept {
  const PrefillParams& p = pass.params;
  const int32_t ctas = pass.cut().cluster_ctas;
  pass.encode(encode_v(pass.params, pass.tensors, 128));
  pass.launch(cluster_instance(pass.tensors.q.is_bf16, p.K),
              {static_cast<unsigned>(int64_t{p.N} * p.HV * (p.V / 128) * ctas)},
              static_cast<unsigned>(ctas));
}

/// The one launch of CutRule::kPrefix.
void launch_prefix(Passes& pass) noexcept {
  const PrefillParams& p = pass.params;
  const int64_t tokens = int64_t{pass.cut().prefix_blocks} * 128;
  pass.encode(encode_v(pass.params, pass.tensors, 128));
  pass.launch(prefix_instance(pass.tensors.q.is_bf16, p.K),
              {static_cast<unsigned>(p.HV * (p.V / 128)),
               static_cast<unsigned>((p.T + tokens - 1) / tokens), static_cast<unsigned>(p.N)});
}

/// Calls load(instance) for each, until one fails.
template <class... Instances>
int load_all(const Instances&... instances) noexcept {
  int error = 0;
  ((error = error != 0 ? error : load_kernel(instances.kernel)), ...);
  return error;
}

int load_joins() noexcept {
  int error = 0;
  for (const int columns : chunk_forward::kJoinColumns) {
    if (error == 0) {
      error = load_all(chunk_forward::join(64, columns), chunk_forward::join(128, columns));
    }
  }
  return error;
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
      grant_shared(instance.kernel, instance.shared_bytes, device) == cudaSuccess &&
      cudaOccupancyMaxActiveClusters(&clusters, instance.kernel, &config) == cudaSuccess;
  if (found) return clusters;
  cudaGetLastError();
  return 0;
}

int load_gated_delta() noexcept {
  using namespace chunk_forward;
  int error = load_joins();
  if (error == 0)
    error =
        load_all(planner(), horizon(), token_preparation(true, 64), token_preparation(true, 128),
                 token_preparation(false, 64), token_preparation(false, 128),
                 summary_planner(false), summary_join(64), summary_join(128));
  for (const auto& of_type : kInstances) {
    for (const auto& of_k : of_type) {
      for (const GetInstance get : of_k)
        error = error != 0 ? error : load_all(get(false), get(true));
    }
  }
  for (const auto& of_type : kTransitions) {
    for (const GetInstance get : of_type)
      error = error != 0 ? error : load_all(get(false), get(true));
  }
  return error;
}

int load_key_gates() noexcept {
  int error = load_joins();
  if (error == 0) {
    error = load_all(chunk_forward::planner(), chunk_forward::key_horizon(),
                     chunk_forward::summary_planner(true), chunk_forward::summary_join(64),
                     chunk_forward::summary_join(128));
  }
  for (const int type : {0, 1}) {
    for (const int of_k : {0, 1}) {
      if (error != 0) return error;
      const int K = of_k == 0 ? 128 : 64;
      error = load_all(key_preparation(type == 0, K, false), key_preparation(type == 0, K, true));
      for (const bool delta : {false, true}) {
        const GetKey get = kKey[type][of_k];
        if (error == 0) {
          error = load_all(get(delta, 128, true), get(delta, 64, true), get(delta, K, false),
                           get(delta, 64, false));
        }
      }
    }
  }
  return error;
}

int load_linear_attention() noexcept {
  int error = load_all(chunk_forward::planner(), linear_attention::join());
  for (const int type : {0, 1}) {
    for (const int K : {64, 128}) {
      const int of_k = K == 128 ? 0 : 1;
      const GetLinear main = kLinear[type][of_k], transition = kLinearTransitions[type][of_k];
      if (error != 0) return error;
      error = load_all(main(64), main(128), transition(64), transition(128),
                       cluster_instance(type == 0, K), prefix_instance(type == 0, K));
    }
  }
  return error;
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
  pass.launch_with(planner, {static_cast<unsigned>((pairs + warps - 1) / warps)}, out);
  if (p.T > 0) launch_transitions(pass, int64_t{pass.cut().most_boundaries} * p.HV);
  const int64_t slices = (p.V + p.K) / chunk_forward::kSummaryColumns;
  pass.launch_with(chunk_forward::summary_join(p.K), {static_cast<unsigned>(pairs * slices)}, out);
}

}  // namespace sluice::cuda::prefill
