// Registers Sluice with ggml, without a change to ggml's sources: a device that computes gated delta nets
// on tensors in host memory and nothing else, so that the scheduler gives the rest to ggml's CPU backend.
// Needs ggml's own header of backends, ggml-backend-impl.h.
// SPDX-License-Identifier: Apache-2.0
#include "sluice_backend.hpp"

#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <sluice/sluice.hpp>
#include <vector>

namespace {

constexpr int64_t kMostStepTokens = 16, kMostHeadDim = 256;
std::atomic<long> calls{0};

struct Context {
  sluice::HostWorkspace scratch;
  std::vector<float> middle;  ///< states before the last tokens
  std::vector<int32_t> slots;
};

/// ggml's [D,H,T,B] as [B,T,H,D], by its strides.
sluice::TensorView rows(const ggml_tensor* t) {
  const auto stride = [t](int axis) { return static_cast<int64_t>(t->nb[axis] / sizeof(float)); };
  return {t->data, sluice::kFloat32, {t->ne[3], t->ne[2], t->ne[1], t->ne[0]},
          {stride(3), stride(2), stride(1), 1}};
}

/// A gate or write strength a head, [1,HV,T,B], as [B,T,HV].
sluice::TensorView scalars(const ggml_tensor* t) {
  const auto stride = [t](int axis) { return static_cast<int64_t>(t->nb[axis] / sizeof(float)); };
  return {t->data, sluice::kFloat32, {t->ne[3], t->ne[2], t->ne[1]},
          {stride(3), stride(2), stride(1)}};
}

/// What both operators have in common. ggml repeats key heads by turns, keeps states as [V,K] and has
/// normalised q and k.
template <class Args>
Args arguments(const ggml_tensor* node, const float* o) {
  const ggml_tensor *q = node->src[0], *v = node->src[2], *g = node->src[3];
  Args args;
  args.q = rows(q), args.k = rows(node->src[1]), args.v = rows(v);
  args.gate = g->ne[0] == 1 ? scalars(g) : rows(g);
  args.beta = scalars(node->src[4]);
  args.o = {o, {v->ne[3], v->ne[2], v->ne[1], v->ne[0]}};
  args.head_map = sluice::HeadMap::kCyclic;
  args.state.layout = sluice::StateLayout::kVK;
  args.implementation = sluice::Implementation::kCpu;
  return args;
}

/// Tokens first .. first + count - 1 of every sequence.
template <class Args>
void slice(Args* args, int64_t first, int64_t count) {
  for (sluice::TensorView* t : {&args->q, &args->k, &args->v, &args->gate, &args->beta, &args->o}) {
    *t = t->sliced(1, first, count);
  }
}

template <class Args>
bool run(const Args& args, Context* context,
         sluice::Status (*op)(const Args&, sluice::Workspace, sluice::Stream) noexcept) {
  const auto size = sluice::workspace_size(args);
  if (!size.ok()) return false;
  return op(args, context->scratch.reserve(size.value.bytes), nullptr).ok();
}

/// The output packs o and, newest first, the states after the last `snapshots` tokens.
bool compute(const ggml_tensor* node, Context* context) {
  const ggml_tensor *v = node->src[2], *state = node->src[5];
  const int64_t S = v->ne[0], HV = v->ne[1], T = v->ne[2], N = v->ne[3];
  const int64_t snapshots = node->op_params[0], kept = std::min(snapshots, T);
  auto* const o = static_cast<float*>(node->data);
  float* const states = o + ggml_nelements(v);
  const int64_t slot = S * S * HV;
  const int64_t stride = static_cast<int64_t>(state->nb[3] / sizeof(float));
  sluice::TensorView from(state->data, sluice::kFloat32, {N, HV, S, S}, {stride, S * S, S, 1});
  const bool by_steps = T <= kMostStepTokens;
  if (snapshots == 1 && !by_steps) {
    auto whole = arguments<sluice::ChunkForwardArgs>(node, o);
    whole.state.initial = from;
    whole.state.final = {states, {N, HV, S, S}};
    return run(whole, context, sluice::chunk_forward);
  }
  const int64_t steps = by_steps ? T : kept;
  if (!by_steps) {
    context->middle.resize(static_cast<size_t>(N * slot));
    auto head = arguments<sluice::ChunkForwardArgs>(node, o);
    slice(&head, 0, T - steps);
    head.state.initial = from;
    from = {context->middle.data(), {N, HV, S, S}};
    head.state.final = from;
    if (!run(head, context, sluice::chunk_forward)) return false;
  }
  auto tail = arguments<sluice::RecurrentStepArgs>(node, o);
  slice(&tail, T - steps, steps);
  tail.state.initial = from;
  tail.state.final = {states, {snapshots * N, HV, S, S}};
  // The state s tokens back lies in slots s N .. s N + N - 1; what is older is not kept. Starts are
  // read from their own places.
  std::vector<int32_t>& slots = context->slots;
  slots.resize(static_cast<size_t>(N * steps + N * steps));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t back = steps - 1 - t;
      slots[n * steps + t] = static_cast<int32_t>(back < snapshots ? back * N + n : -1);
      slots[(N + n) * steps + t] = static_cast<int32_t>(n);
    }
  }
  tail.state.write_slots = {slots.data(), {N, steps}};
  tail.state.read_slots = {slots.data() + N * steps, {N, steps}};
  tail.state_writes = sluice::StateWrites::kPerToken;
  return run(tail, context, sluice::recurrent_step);
}

bool is_view(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
         op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

bool takes(const ggml_tensor* op) {
  if (is_view(op->op)) return true;
  if (op->op != GGML_OP_GATED_DELTA_NET) return false;
  const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *g = op->src[3];
  for (int i = 0; i < 6; ++i) {
    if (op->src[i]->type != GGML_TYPE_F32 || op->src[i]->nb[0] != sizeof(float)) return false;
  }
  return v->ne[0] <= kMostHeadDim && q->ne[3] == v->ne[3] && k->ne[3] == v->ne[3] &&
         q->ne[1] == k->ne[1] && (g->ne[0] == 1 || g->ne[0] == v->ne[0]) &&
         op->op_params[0] <= kMostStepTokens;
}

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  auto* const context = static_cast<Context*>(backend->context);
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (is_view(node->op) || ggml_is_empty(node)) continue;
    if (!takes(node) || !compute(node, context)) return GGML_STATUS_FAILED;
    ++calls;
  }
  return GGML_STATUS_SUCCESS;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  static ggml_guid id = {0x53, 0x6c, 0x75, 0x69, 0x63, 0x65, 0x20, 0x66,
                         0x6f, 0x72, 0x20, 0x67, 0x67, 0x6d, 0x6c, 0x21};
  auto* const backend = new ggml_backend();
  backend->guid = &id;
  backend->iface.get_name = [](ggml_backend_t) { return "Sluice"; };
  backend->iface.free = [](ggml_backend_t self) {
    delete static_cast<Context*>(self->context);
    delete self;
  };
  backend->iface.graph_compute = graph_compute;
  backend->device = device;
  backend->context = new Context();
  return backend;
}

ggml_backend_device make_device(ggml_backend_reg_t registry) {
  ggml_backend_device device{};
  device.reg = registry;
  ggml_backend_device_i& i = device.iface;
  i.get_name = [](ggml_backend_dev_t) { return "Sluice"; };
  i.get_description = [](ggml_backend_dev_t) { return "gated linear attention on the CPU"; };
  i.get_memory = [](ggml_backend_dev_t, size_t* free, size_t* total) { *free = *total = 0; };
  i.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
  i.get_props = [](ggml_backend_dev_t self, ggml_backend_dev_props* out) {
    std::memset(out, 0, sizeof *out);
    out->name = self->iface.get_name(self);
    out->description = self->iface.get_description(self);
    out->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
    out->caps.buffer_from_host_ptr = true;
  };
  i.init_backend = init_backend;
  i.get_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); };
  i.buffer_from_host_ptr = [](ggml_backend_dev_t, void* memory, size_t size, size_t) {
    return ggml_backend_cpu_buffer_from_ptr(memory, size);
  };
  i.supports_op = [](ggml_backend_dev_t, const ggml_tensor* op) { return takes(op); };
  i.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return ggml_backend_buft_is_host(type);
  };
  return device;
}

}  // namespace

ggml_backend_reg_t sluice_ggml_reg() {
  static ggml_backend_reg registry = [] {
    ggml_backend_reg made{};
    made.api_version = GGML_BACKEND_API_VERSION;
    made.iface.get_name = [](ggml_backend_reg_t) { return "Sluice"; };
    made.iface.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
    made.iface.get_device = [](ggml_backend_reg_t self, size_t) -> ggml_backend_dev_t {
      static ggml_backend_device device = make_device(self);
      return &device;
    };
    made.iface.get_proc_address = [](ggml_backend_reg_t, const char* name) -> void* {
      const bool known = std::strcmp(name, "sluice_ggml_calls") == 0;
      return known ? reinterpret_cast<void*>(sluice_ggml_calls) : nullptr;
    };
    return made;
  }();
  return &registry;
}

long sluice_ggml_calls() { return calls; }

// For ggml builds that load backends from shared libraries (GGML_BACKEND_DL).
GGML_BACKEND_DL_IMPL(sluice_ggml_reg)
