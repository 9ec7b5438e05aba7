// Turns a node GGML_OP_GATED_DELTA_NET into arguments of Sluice's operators: what the host's device and
// the CUDA adaptor have in common.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_EXAMPLES_GGML_GATED_DELTA_NET_HPP_
#define SLUICE_EXAMPLES_GGML_GATED_DELTA_NET_HPP_

#include <ggml.h>

#include <atomic>
#include <sluice/sluice.hpp>
#include <vector>

namespace sluice_ggml {

constexpr int64_t kMostStepTokens = 16, kMostHeadDim = 256;

/// Operations that ran on Sluice in this process.
inline std::atomic<long> calls{0};

/// Where tensors are and what computes them.
struct Place {
  sluice_device device = sluice::kCpuDevice;
  sluice::Implementation implementation = sluice::Implementation::kCpu;
};

inline int64_t stride(const ggml_tensor* t, int axis) {
  return static_cast<int64_t>(t->nb[axis] / sizeof(float));
}

/// ggml's [D,H,T,B] as [B,T,H,D], by its strides.
inline sluice::TensorView rows(const ggml_tensor* t, const Place& place) {
  return {t->data,
          sluice::kFloat32,
          {t->ne[3], t->ne[2], t->ne[1], t->ne[0]},
          {stride(t, 3), stride(t, 2), stride(t, 1), 1},
          place.device};
}

/// A gate or write strength a head, [1,HV,T,B], as [B,T,HV].
inline sluice::TensorView scalars(const ggml_tensor* t, const Place& place) {
  return {t->data,
          sluice::kFloat32,
          {t->ne[3], t->ne[2], t->ne[1]},
          {stride(t, 3), stride(t, 2), stride(t, 1)},
          place.device};
}

/// The states that enter, [N,HV,V,K].
inline sluice::TensorView states(const ggml_tensor* t, const Place& place) {
  const int64_t S = t->ne[0], HV = t->ne[2];
  return {
      t->data, sluice::kFloat32, {t->ne[3], HV, S, S}, {stride(t, 3), S * S, S, 1}, place.device};
}

/// What both operators have in common. ggml repeats key heads by turns, keeps states as [V,K] and has
/// normalised q and k. o is the beginning of the node's own memory.
template <class Args>
Args arguments(const ggml_tensor* node, const Place& place) {
  const ggml_tensor *v = node->src[2], *g = node->src[3];
  Args args;
  args.q = rows(node->src[0], place), args.k = rows(node->src[1], place), args.v = rows(v, place);
  args.gate = g->ne[0] == 1 ? scalars(g, place) : rows(g, place);
  args.beta = scalars(node->src[4], place);
  args.o = {static_cast<const float*>(node->data),
            {v->ne[3], v->ne[2], v->ne[1], v->ne[0]},
            place.device};
  args.head_map = sluice::HeadMap::kCyclic;
  args.state.layout = sluice::StateLayout::kVK;
  args.state.initial = states(node->src[5], place);
  args.implementation = place.implementation;
  return args;
}

/// Slots to write and to read of N sequences of `steps` tokens: the state s tokens back of sequence n
/// goes to slot s `apart` + n, older ones than `kept` nowhere; starts are read from their own places.
inline std::vector<int32_t> snapshot_slots(int64_t N, int64_t steps, int64_t kept, int64_t apart) {
  std::vector<int32_t> slots(static_cast<size_t>(2 * N * steps));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t back = steps - 1 - t;
      slots[n * steps + t] = static_cast<int32_t>(back < kept ? back * apart + n : -1);
      slots[(N + n) * steps + t] = static_cast<int32_t>(n);
    }
  }
  return slots;
}

inline bool is_view(ggml_op op) {
  return op == GGML_OP_NONE || op == GGML_OP_RESHAPE || op == GGML_OP_VIEW ||
         op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

/// Whether it is a gated delta net that Sluice takes.
inline bool takes(const ggml_tensor* op) {
  if (op->op != GGML_OP_GATED_DELTA_NET) return false;
  const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *g = op->src[3];
  for (int i = 0; i < 6; ++i) {
    if (op->src[i]->type != GGML_TYPE_F32 || op->src[i]->nb[0] != sizeof(float)) return false;
  }
  return v->ne[0] <= kMostHeadDim && q->ne[3] == v->ne[3] && k->ne[3] == v->ne[3] &&
         q->ne[1] == k->ne[1] && (g->ne[0] == 1 || g->ne[0] == v->ne[0]) &&
         op->op_params[0] <= kMostStepTokens;
}

}  // namespace sluice_ggml

#endif  // SLUICE_EXAMPLES_GGML_GATED_DELTA_NET_HPP_
