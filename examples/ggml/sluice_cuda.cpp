// Takes gated delta nets over from ggml's CUDA backend, without a change to ggml's sources: a backend's
// table of functions gets a graph_compute of our own, which gives ggml's everything else. Sluice's calls
// are ordered among ggml's by events, and the whole is captured in one CUDA graph, as ggml would do.
// Needs ggml's own headers ggml-backend-impl.h and ggml-impl.h.
// SPDX-License-Identifier: Apache-2.0
#include "sluice_cuda.hpp"

#include <cuda_runtime.h>
#include <ggml-backend-impl.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "cuda_graphs.hpp"
#include "gated_delta_net.hpp"

namespace sluice_ggml {
namespace {

constexpr size_t kAlignment = 256, kMostGraphs = 64;
/// False where ggml was told to make no CUDA graphs.
bool may_capture = true;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

cudaEvent_t cuda_event(ggml_backend_event_t event) {
  return static_cast<cudaEvent_t>(event->context);
}

/// Where tensors of a CUDA device are: in the host's memory where stand_in.cpp takes its place.
Place place_of([[maybe_unused]] int device) {
#ifdef SLUICE_GGML_STAND_IN
  return {};
#else
  return {sluice::cuda_device(device), sluice::Implementation::kCuda};
#endif
}

/// One backend of a CUDA device of ggml's.
class Backend {
 public:
  Backend(ggml_backend_t cuda, int device)
      : cuda_(cuda),
        theirs_(cuda->iface),
        before_(ggml_backend_event_new(cuda->device)),
        after_(ggml_backend_event_new(cuda->device)),
        device_(device),
        place_(place_of(device)),
        small_(ggml_init(
            {16 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false), nullptr, true})) {
    cudaSetDevice(device);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }

  ~Backend() {
    cudaSetDevice(device_);
    cudaStreamSynchronize(stream_);
    for (auto& [key, seen] : graphs_) seen.forget();
    for (auto& [key, slots] : slots_) cudaFree(slots);
    if (scratch_ != nullptr) ggml_backend_buffer_free(scratch_);
    ggml_backend_event_free(before_);
    ggml_backend_event_free(after_);
    cudaStreamDestroy(stream_);
    ggml_free(small_);
  }

  const ggml_backend_i& theirs() const { return theirs_; }

  ggml_status compute(ggml_cgraph* graph) {
    cudaSetDevice(device_);
    if (!capture_ || graph->n_nodes == 0) return run(graph);
    if (graphs_.size() >= kMostGraphs && graphs_.count(graph->nodes[0]) == 0) forget_all();
    Seen& seen = graphs_[graph->nodes[0]];
    if (!is_same(graph, &seen)) {
      seen.forget();
      return run(graph);
    }
    if (seen.instance == nullptr && !capture(graph, &seen)) return run(graph);
    to_ours();
    const bool launched = cudaGraphLaunch(seen.instance, stream_) == cudaSuccess;
    to_theirs();
    calls += seen.calls;
    return launched ? GGML_STATUS_SUCCESS : GGML_STATUS_FAILED;
  }

 private:
  /// What our stream does from here on follows what ggml's has been given.
  void to_ours() {
    ggml_backend_event_record(before_, cuda_);
    cudaStreamWaitEvent(stream_, cuda_event(before_), 0);
  }

  void to_theirs() {
    cudaEventRecord(cuda_event(after_), stream_);
    ggml_backend_event_wait(cuda_, after_);
  }

  /// ggml's stream takes part in a capture of ours as long as it waits for our stream's events.
  bool capture(ggml_cgraph* graph, Seen* seen) {
    if (!can_be_captured(graph)) return false;
    if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed) != cudaSuccess) return false;
    const long before = calls;
    to_theirs();
    const bool done = run(graph) == GGML_STATUS_SUCCESS;
    to_ours();
    seen->calls = calls - before;
    calls -= seen->calls;
    cudaGraph_t captured = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream_, &captured);
    if (error == cudaSuccess && done) error = cudaGraphInstantiate(&seen->instance, captured, 0);
    if (captured != nullptr) cudaGraphDestroy(captured);
    capture_ = error == cudaSuccess && done;
    if (!capture_) {
      GGML_LOG_WARN("Sluice: no CUDA graphs from here on: %s\n", cudaGetErrorString(error));
      seen->instance = nullptr;
      cudaGetLastError();  // the capture's, not the next call's
    }
    return capture_;
  }

  void forget_all() {
    cudaStreamSynchronize(stream_);
    for (auto& [key, seen] : graphs_) seen.forget();
    graphs_.clear();
  }

  /// Runs of other nodes by ggml, the gated delta nets between them by Sluice.
  ggml_status run(ggml_cgraph* graph) {
    int first = 0;
    for (int i = 0; i < graph->n_nodes; ++i) {
      if (!takes_on_cuda(graph->nodes[i])) continue;
      if (const ggml_status status = run_theirs(graph, first, i); status != GGML_STATUS_SUCCESS) {
        return status;
      }
      first = i;
      const Target target = target_of(graph, i);
      if (!run_ours(graph->nodes[i], target)) continue;  // ggml's next run begins with it
      ++calls;
      i += target.skip;
      first = i + 1;
    }
    return run_theirs(graph, first, graph->n_nodes);
  }

  ggml_status run_theirs(ggml_cgraph* graph, int first, int end) {
    if (first == end) return GGML_STATUS_SUCCESS;
    ggml_cgraph made = part(graph, first, end);
    return theirs_.graph_compute(cuda_, &made);
  }

  bool run_ours(const ggml_tensor* node, const Target& target) {
    return node->src[2]->ne[2] <= kMostStepTokens ? run_steps(node, target)
                                                  : run_prompt(node, target);
  }

  bool run_steps(const ggml_tensor* node, const Target& target) {
    const ggml_tensor* const v = node->src[2];
    const int64_t S = v->ne[0], HV = v->ne[1], T = v->ne[2], N = v->ne[3];
    const int64_t kept = std::min<int64_t>(node->op_params[0], T);
    auto args = arguments<sluice::RecurrentStepArgs>(node, place_);
    args.state.final = states_at(target, (kept - 1) * target.apart + N, HV, S);
    if (node->op_params[0] > 1) {
      int32_t* const slots = device_slots({N, T, kept, target.apart});
      if (slots == nullptr) return false;
      args.state.write_slots = {slots, {N, T}, place_.device};
      args.state.read_slots = {slots + N * T, {N, T}, place_.device};
      args.state_writes = sluice::StateWrites::kPerToken;
    }
    return call(args, 0, sluice::recurrent_step);
  }

  /// With a workspace behind the first `used` bytes of our memory, which are there.
  template <class Args>
  bool call(const Args& args, size_t used,
            sluice::Status (*op)(const Args&, sluice::Workspace, sluice::Stream) noexcept) {
    const auto size = sluice::workspace_size(args);
    if (!size.ok() || !reserve(used + size.value.bytes)) return false;
    to_ours();
    const bool done = op(args, {base() + used, size.value.bytes}, stream_).ok();
    to_theirs();
    return done;
  }

  /// q, k and v are rounded to float16 for the tensor cores, and o comes back in that; states, gates
  /// and write strengths stay as they are.
  bool run_prompt(const ggml_tensor* node, const Target& target) {
    const ggml_tensor* const v = node->src[2];
    auto args = arguments<sluice::ChunkForwardArgs>(node, place_);
    args.state.final = states_at(target, v->ne[3], v->ne[1], v->ne[0]);
    if (prompts() == Prompts::kFloat32) return call(args, 0, sluice::chunk_forward);
    size_t used = 0;
    sluice::TensorView* const views[] = {&args.q, &args.k, &args.v, &args.o};
    std::array<size_t, 4> offsets{};
    for (int i = 0; i < 4; ++i) {
      const int64_t* const n = views[i]->shape;
      offsets[i] = used;
      used += aligned(static_cast<size_t>(n[0] * n[1] * n[2] * n[3]) * sizeof(ggml_fp16_t));
      *views[i] = {base(), sluice::kFloat16, {n[0], n[1], n[2], n[3]}, place_.device};
    }
    // Pointers are asked for once the memory is large enough: it moves when it grows.
    if (!reserve(used)) return false;
    for (int i = 0; i < 4; ++i) views[i]->data = base() + offsets[i];
    const auto size = sluice::workspace_size(args);
    if (!size.ok() || !reserve(used + size.value.bytes)) return false;
    for (int i = 0; i < 4; ++i) views[i]->data = base() + offsets[i];
    ggml_reset(small_);
    ggml_cgraph* const graph = ggml_new_graph_custom(small_, 8, false);
    for (int i = 0; i < 3; ++i) {
      ggml_tensor from = *node->src[i];
      add_copy(graph, &from, views[i]->data, GGML_TYPE_F16, true);
    }
    if (theirs_.graph_compute(cuda_, graph) != GGML_STATUS_SUCCESS) return false;
    if (!call(args, used, sluice::chunk_forward)) return false;
    ggml_reset(small_);
    ggml_cgraph* const back = ggml_new_graph_custom(small_, 8, false);
    ggml_tensor to = *v;
    for (int i = 1; i < GGML_MAX_DIMS; ++i)
      to.nb[i] = to.nb[i - 1] * static_cast<size_t>(to.ne[i - 1]);
    to.data = node->data, to.buffer = node->buffer;
    add_copy(back, &to, views[3]->data, GGML_TYPE_F16, false);
    return theirs_.graph_compute(cuda_, back) == GGML_STATUS_SUCCESS;
  }

  /// A copy between a tensor and contiguous memory of ours, by ggml's own kernels.
  void add_copy(ggml_cgraph* graph, const ggml_tensor* outside, void* ours, ggml_type type,
                bool inwards) {
    ggml_tensor* const there = ggml_new_tensor(small_, outside->type, GGML_MAX_DIMS, outside->ne);
    std::memcpy(there->nb, outside->nb, sizeof there->nb);
    there->data = outside->data, there->buffer = outside->buffer;
    ggml_tensor* const here = ggml_new_tensor(small_, type, GGML_MAX_DIMS, outside->ne);
    here->data = ours, here->buffer = scratch_;
    ggml_tensor* const copy =
        inwards ? ggml_cpy(small_, there, here) : ggml_cpy(small_, here, there);
    copy->data = copy->src[1]->data, copy->buffer = copy->src[1]->buffer;
    ggml_build_forward_expand(graph, copy);
  }

  sluice::TensorView states_at(const Target& target, int64_t slots, int64_t HV, int64_t S) const {
    return {target.data,
            sluice::kFloat32,
            {slots, HV, S, S},
            {target.stride, S * S, S, 1},
            place_.device};
  }

  /// As Sluice wants a workspace, whatever a buffer's own alignment.
  char* base() const {
    if (scratch_ == nullptr) return nullptr;
    const auto address = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(scratch_));
    return reinterpret_cast<char*>(aligned(address));
  }

  /// Graphs that were captured hold the old memory, so they go with it. A graph is captured only after
  /// it has run once, so that nothing grows within a capture.
  bool reserve(size_t bytes) {
    if (bytes <= reserved_) return true;
    ggml_backend_synchronize(cuda_);
    cudaStreamSynchronize(stream_);
    for (auto& [key, seen] : graphs_) seen.forget();
    if (scratch_ != nullptr) ggml_backend_buffer_free(scratch_);
    scratch_ = ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(cuda_->device),
                                              bytes + kAlignment);
    reserved_ = scratch_ == nullptr ? 0 : bytes;
    return scratch_ != nullptr;
  }

  /// Made once, before any capture, and kept.
  int32_t* device_slots(const std::array<int64_t, 4>& key) {
    int32_t*& there = slots_[key];
    if (there != nullptr) return there;
    const std::vector<int32_t> here = snapshot_slots(key[0], key[1], key[2], key[3]);
    const size_t bytes = here.size() * sizeof(int32_t);
    if (cudaMalloc(&there, bytes) != cudaSuccess) return there = nullptr;
    cudaMemcpy(there, here.data(), bytes, cudaMemcpyHostToDevice);
    return there;
  }

  ggml_backend_t cuda_;
  ggml_backend_i theirs_;
  ggml_backend_event_t before_, after_;
  int device_;
  Place place_;
  ggml_context* small_;
  cudaStream_t stream_ = nullptr;
  ggml_backend_buffer_t scratch_ = nullptr;
  size_t reserved_ = 0;
  std::map<std::array<int64_t, 4>, int32_t*> slots_;
  std::unordered_map<const ggml_tensor*, Seen> graphs_;
  bool capture_ = may_capture;
};

std::mutex lock;
/// Never destroyed: at the end of the process CUDA may be gone before it.
auto& backends = *new std::unordered_map<ggml_backend_t, std::unique_ptr<Backend>>();
ggml_backend_t (*their_init)(ggml_backend_dev_t, const char*) = nullptr;

Backend& backend_of(ggml_backend_t cuda) {
  const std::lock_guard<std::mutex> guard(lock);
  return *backends.at(cuda);
}

void free_backend(ggml_backend_t cuda) {
  std::unique_ptr<Backend> ours;
  {
    const std::lock_guard<std::mutex> guard(lock);
    ours = std::move(backends.at(cuda));
    backends.erase(cuda);
  }
  const ggml_backend_i theirs = ours->theirs();
  ours.reset();
  theirs.free(cuda);
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char* parameters) {
  ggml_backend_t cuda = their_init(device, parameters);
  if (cuda == nullptr) return nullptr;
  ggml_backend_dev_props props;
  ggml_backend_dev_get_props(device, &props);
  if (!props.caps.events) return cuda;
  const int index = std::atoi(ggml_backend_dev_name(device) + std::strlen("CUDA"));
  auto ours = std::make_unique<Backend>(cuda, index);
  cuda->iface.graph_compute = [](ggml_backend_t self, ggml_cgraph* graph) {
    return backend_of(self).compute(graph);
  };
  cuda->iface.free = free_backend;
  const std::lock_guard<std::mutex> guard(lock);
  backends[cuda] = std::move(ours);
  return cuda;
}

}  // namespace

void take_over_cuda() {
  ggml_backend_reg_t cuda = ggml_backend_reg_by_name("CUDA");
  // ggml's concurrent streams reorder a graph's nodes across ours.
  const char* const concurrent = std::getenv("GGML_CUDA_GRAPH_OPT");
  if (cuda == nullptr || (concurrent != nullptr && std::atoi(concurrent) == 1)) return;
  may_capture = std::getenv("GGML_CUDA_DISABLE_GRAPHS") == nullptr;
  setenv("GGML_CUDA_DISABLE_GRAPHS", "1", 1);  // graphs within ours cannot be captured again
  for (size_t i = 0; i < ggml_backend_reg_dev_count(cuda); ++i) {
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(cuda, i);
    if (their_init == nullptr) their_init = device->iface.init_backend;
    device->iface.init_backend = init_backend;
  }
}

}  // namespace sluice_ggml
