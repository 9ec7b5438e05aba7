// Registers Sluice with ggml, without a change to ggml's sources: a device that computes gated delta nets
// on tensors in host memory and nothing else, so that the scheduler gives the rest to ggml's CPU backend.
// Needs ggml's own header of backends, ggml-backend-impl.h.
// SPDX-License-Identifier: Apache-2.0
#include "sluice_backend.hpp"

#include "gated_delta_net.hpp"
#ifdef SLUICE_GGML_CUDA
#include "sluice_cuda.hpp"
#endif

#include <ggml-backend-impl.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <sluice/sluice.hpp>
#include <vector>

namespace {

using namespace sluice_ggml;  // NOLINT(google-build-using-namespace): an example

struct Context {
  sluice::HostWorkspace scratch;
  std::vector<float> middle;  ///< states before the last tokens
  std::vector<int32_t> slots;
};

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
  const ggml_tensor* const v = node->src[2];
  const int64_t S = v->ne[0], HV = v->ne[1], T = v->ne[2], N = v->ne[3];
  const int64_t snapshots = node->op_params[0], kept = std::min(snapshots, T);
  float* const after = static_cast<float*>(node->data) + ggml_nelements(v);
  const bool by_steps = T <= kMostStepTokens;
  if (snapshots == 1 && !by_steps) {
    auto whole = arguments<sluice::ChunkForwardArgs>(node, Place());
    whole.state.final = {after, {N, HV, S, S}};
    return run(whole, context, sluice::chunk_forward);
  }
  const int64_t steps = by_steps ? T : kept;
  auto tail = arguments<sluice::RecurrentStepArgs>(node, Place());
  slice(&tail, T - steps, steps);
  if (!by_steps) {
    context->middle.resize(static_cast<size_t>(N * HV * S * S));
    auto head = arguments<sluice::ChunkForwardArgs>(node, Place());
    slice(&head, 0, T - steps);
    head.state.final = {context->middle.data(), {N, HV, S, S}};
    tail.state.initial = head.state.final;
    if (!run(head, context, sluice::chunk_forward)) return false;
  }
  tail.state.final = {after, {snapshots * N, HV, S, S}};
  context->slots = snapshot_slots(N, steps, snapshots, N);
  tail.state.write_slots = {context->slots.data(), {N, steps}};
  tail.state.read_slots = {context->slots.data() + N * steps, {N, steps}};
  tail.state_writes = sluice::StateWrites::kPerToken;
  return run(tail, context, sluice::recurrent_step);
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
  i.supports_op = [](ggml_backend_dev_t, const ggml_tensor* op) {
    return is_view(op->op) || takes(op);
  };
  i.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return ggml_backend_buft_is_host(type);
  };
  return device;
}

}  // namespace

ggml_backend_reg_t sluice_ggml_reg() {
  static ggml_backend_reg registry = [] {
#ifdef SLUICE_GGML_CUDA
    sluice_ggml::take_over_cuda();
#endif
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

long sluice_ggml_calls() { return sluice_ggml::calls; }

// For ggml builds that load backends from shared libraries (GGML_BACKEND_DL).
GGML_BACKEND_DL_IMPL(sluice_ggml_reg)
