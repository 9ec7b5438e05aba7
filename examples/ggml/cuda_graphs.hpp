// Reads ggml's graphs for the CUDA adaptor: whether one was seen before, which gated delta nets Sluice
// takes, and where their last states go. Needs ggml's own header ggml-impl.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_EXAMPLES_GGML_CUDA_GRAPHS_HPP_
#define SLUICE_EXAMPLES_GGML_CUDA_GRAPHS_HPP_

#include <cuda_runtime.h>
#include <ggml-impl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "gated_delta_net.hpp"

namespace sluice_ggml {

/// PERF of 8 sequences the operator takes as long as ggml's, of 32 a twelfth less: docs/engines/ggml.md.
constexpr int64_t kFewestSequences = 16;

/// A node as it was, with what it reads: where this is equal, a captured graph is still right.
struct Node {
  struct Source {
    void* data;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
  };
  ggml_tensor tensor;
  Source sources[GGML_MAX_SRC];
};

/// A ggml graph that was seen, and its CUDA graph once it came twice.
struct Seen {
  uint64_t uid = 0;
  std::vector<Node> nodes;
  cudaGraphExec_t instance = nullptr;
  long calls = 0;  ///< of Sluice, in the instance

  void forget() {
    if (instance != nullptr) cudaGraphExecDestroy(instance);
    instance = nullptr;
  }
};

/// Whether the graph is the one that was seen, which it is from now on.
inline bool is_same(const ggml_cgraph* graph, Seen* seen) {
  if (graph->uid != 0 && graph->uid == seen->uid) return true;
  seen->uid = graph->uid;
  bool same = seen->nodes.size() == static_cast<size_t>(graph->n_nodes);
  seen->nodes.resize(static_cast<size_t>(graph->n_nodes));
  for (int i = 0; i < graph->n_nodes; ++i) {
    Node now;
    std::memset(&now, 0, sizeof now);
    std::memcpy(&now.tensor, graph->nodes[i], sizeof now.tensor);
    for (int j = 0; j < GGML_MAX_SRC; ++j) {
      const ggml_tensor* const from = graph->nodes[i]->src[j];
      if (from == nullptr) continue;
      now.sources[j].data = from->data;
      std::memcpy(now.sources[j].ne, from->ne, sizeof from->ne);
      std::memcpy(now.sources[j].nb, from->nb, sizeof from->nb);
    }
    same = same && std::memcmp(&seen->nodes[i], &now, sizeof now) == 0;
    seen->nodes[i] = now;
  }
  return same;
}

/// Where a node's last states go: to the end of its own output, or past it straight into the cache.
struct Target {
  float* data;
  int64_t stride;  ///< numbers between sequences
  int64_t apart;   ///< sequences between snapshots
  int skip;        ///< nodes after this one that are done with it
};

inline Target own_tail(const ggml_tensor* node) {
  const ggml_tensor* const v = node->src[2];
  return {static_cast<float*>(node->data) + ggml_nelements(v), v->ne[0] * v->ne[0] * v->ne[1],
          v->ne[3], 0};
}

/// If the next computation copies the states to rows of a cache, those rows. ggml's CUDA backend leaves
/// out that copy too.
inline Target target_of(const ggml_cgraph* graph, int i) {
  const ggml_tensor* const node = graph->nodes[i];
  Target target = own_tail(node);
  int j = i + 1;
  while (j < graph->n_nodes && is_view(graph->nodes[j]->op)) ++j;
  if (j == graph->n_nodes || graph->nodes[j]->op != GGML_OP_CPY) return target;
  const ggml_tensor *copy = graph->nodes[j], *from = copy->src[0], *to = copy->src[1];
  const ggml_tensor* const v = node->src[2];
  const int64_t written = std::min<int64_t>(node->op_params[0], v->ne[2]);
  const auto offset = static_cast<size_t>(ggml_nelements(v)) * sizeof(float);
  const size_t row = static_cast<size_t>(target.stride) * sizeof(float);
  const bool ours = from->view_src == node && from->view_offs == offset && ggml_is_contiguous(from);
  const bool rows = to->type == GGML_TYPE_F32 && to->ne[0] == target.stride &&
                    to->ne[1] == v->ne[3] && to->ne[2] == written && to->ne[3] == 1 &&
                    to->nb[0] == sizeof(float) && to->nb[1] == row && to->nb[2] % row == 0;
  const bool hidden = ((node->flags | copy->flags) & GGML_TENSOR_FLAG_OUTPUT) == 0 &&
                      (copy->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
  if (!ours || !rows || !hidden) return target;
  const int64_t apart = written > 1 ? static_cast<int64_t>(to->nb[2] / row) : v->ne[3];
  return {static_cast<float*>(to->data), target.stride, apart, j - i};
}

/// What SLUICE_GGML_PROMPT says about prompts: ggml keeps them, or Sluice takes them in float32, or with
/// tokens rounded to float16.
enum class Prompts { kKept, kFloat32, kFloat16 };

inline Prompts prompts() {
  static const Prompts found = [] {
    const char* const value = std::getenv("SLUICE_GGML_PROMPT");
    const std::string_view text = value == nullptr ? "" : value;
    if (text == "float16") return Prompts::kFloat16;
    return text == "float32" ? Prompts::kFloat32 : Prompts::kKept;
  }();
  return found;
}

/// Sequences from which on Sluice takes steps.
inline int64_t fewest_sequences() {
  static const int64_t found = [] {
    const char* const value = std::getenv("SLUICE_GGML_SEQUENCES");
    return value == nullptr ? kFewestSequences : std::atoll(value);
  }();
  return found;
}

/// Steps, and prompts where asked for.
inline bool takes_on_cuda(const ggml_tensor* node) {
  if (!takes(node) || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || ggml_is_empty(node))
    return false;
  const ggml_tensor* const v = node->src[2];
  if (v->ne[2] <= kMostStepTokens) return v->ne[3] >= fewest_sequences();
  const int64_t S = v->ne[0];
  const bool fast = S == 64 || S == 128;
  return node->op_params[0] == 1 &&
         (prompts() == Prompts::kFloat32 || (prompts() == Prompts::kFloat16 && fast));
}

/// Whether it can be captured: ggml waits on the host for the ids of experts that its kernels for few
/// tokens do not take.
inline bool can_be_captured(const ggml_cgraph* graph) {
  for (int i = 0; i < graph->n_nodes; ++i) {
    const ggml_tensor* const node = graph->nodes[i];
    if (node->op != GGML_OP_MUL_MAT_ID) continue;
    if (!ggml_is_quantized(node->src[0]->type) || node->ne[2] != 1) return false;
  }
  return true;
}

/// Nodes first .. end - 1.
inline ggml_cgraph part(const ggml_cgraph* graph, int first, int end) {
  ggml_cgraph made = *graph;
  made.nodes += first;
  made.n_nodes = end - first;
  made.n_leafs = 0;
  made.uid = 0;
  return made;
}

}  // namespace sluice_ggml

#endif  // SLUICE_EXAMPLES_GGML_CUDA_GRAPHS_HPP_
