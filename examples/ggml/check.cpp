// Runs gated delta nets by ggml's scheduler with Sluice in front, and by ggml's CPU backend alone, and
// compares outputs and states: prefill, decode, several sequences, snapshots, gates of key channels.
// SPDX-License-Identifier: Apache-2.0
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "sluice_backend.hpp"

namespace {

struct Case {
  const char* name;
  int64_t S, H, HV, T, N, snapshots;
  bool key_gates;
};

/// The result of one gated delta net, whose gates are made of another operation so that two backends
/// have work.
std::vector<float> run(const Case& c, std::vector<ggml_backend_t> backends) {
  ggml_init_params parameters = {ggml_tensor_overhead() * 64 + ggml_graph_overhead(), nullptr, true};
  ggml_context* context = ggml_init(parameters);
  const auto tensor = [&](int64_t a, int64_t b, int64_t d, int64_t e) {
    ggml_tensor* t = ggml_new_tensor_4d(context, GGML_TYPE_F32, a, b, d, e);
    ggml_set_input(t);
    return t;
  };
  ggml_tensor* q = tensor(c.S, c.H, c.T, c.N);
  ggml_tensor* k = tensor(c.S, c.H, c.T, c.N);
  ggml_tensor* v = tensor(c.S, c.HV, c.T, c.N);
  ggml_tensor* raw = tensor(c.key_gates ? c.S : 1, c.HV, c.T, c.N);
  ggml_tensor* logits = tensor(1, c.HV, c.T, c.N);
  ggml_tensor* state = tensor(c.S, c.S, c.HV, c.N);
  ggml_tensor* gate = ggml_scale(context, ggml_sqr(context, raw), -0.1f);
  ggml_tensor* result = ggml_gated_delta_net(
      context, ggml_l2_norm(context, q, 1e-6f), ggml_l2_norm(context, k, 1e-6f), v, gate,
      ggml_sigmoid(context, logits), state, c.snapshots);
  ggml_set_output(result);
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, result);
  ggml_backend_sched_t scheduler = ggml_backend_sched_new(
      backends.data(), nullptr, static_cast<int>(backends.size()), 64, false, true);
  ggml_backend_sched_alloc_graph(scheduler, graph);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (ggml_tensor* t : {q, k, v, raw, logits, state}) {
    std::vector<float> numbers(static_cast<size_t>(ggml_nelements(t)));
    for (float& x : numbers) x = normal(random);
    ggml_backend_tensor_set(t, numbers.data(), 0, ggml_nbytes(t));
  }
  std::vector<float> found(static_cast<size_t>(ggml_nelements(result)), 0.0f);
  // Snapshots of tokens that there are not are nobody's: zeros in both.
  ggml_backend_tensor_set(result, found.data(), 0, ggml_nbytes(result));
  const bool done = ggml_backend_sched_graph_compute(scheduler, graph) == GGML_STATUS_SUCCESS;
  ggml_backend_tensor_get(result, found.data(), 0, ggml_nbytes(result));
  ggml_backend_sched_free(scheduler);
  ggml_free(context);
  if (!done) found.clear();
  return found;
}

double relative(const std::vector<float>& x, const std::vector<float>& reference) {
  if (x.empty() || x.size() != reference.size()) return INFINITY;
  double distance = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    distance += std::pow(double{x[i]} - double{reference[i]}, 2);
    size += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(distance / size);
}

}  // namespace

int main() {
  ggml_log_set([](ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
  }, nullptr);
  ggml_backend_register(sluice_ggml_reg());
  ggml_backend_dev_t device = ggml_backend_dev_by_name("Sluice");
  if (device == nullptr) return std::puts("Sluice is not among ggml's devices"), 1;
  ggml_backend_t ours = ggml_backend_dev_init(device, nullptr);
  ggml_backend_t theirs = ggml_backend_cpu_init();
  const Case cases[] = {
      {"prefill", 128, 4, 8, 200, 1, 1, false},    {"two prompts", 64, 2, 2, 100, 2, 1, false},
      {"decode", 128, 4, 8, 1, 3, 1, false},       {"drafts", 128, 4, 8, 4, 2, 4, false},
      {"few tokens", 64, 2, 4, 2, 1, 4, false},    {"a prompt's last states", 64, 2, 4, 50, 2, 3, false},
      {"gates by channel", 64, 2, 4, 70, 1, 1, true}, {"the same, decode", 64, 2, 4, 1, 2, 1, true},
  };
  int wrong = 0;
  for (const Case& c : cases) {
    const long before = sluice_ggml_calls();
    const double error = relative(run(c, {ours, theirs}), run(c, {theirs}));
    const bool ran = sluice_ggml_calls() == before + 1;
    const bool pass = error < 1e-5 && ran;
    wrong += pass ? 0 : 1;
    std::printf("%-24s %.1e from ggml's  %s\n", c.name, error,
                pass ? "PASS" : ran ? "FAIL" : "FAIL: did not run on Sluice");
  }
  ggml_backend_free(ours);
  ggml_backend_free(theirs);
  return wrong == 0 ? 0 : 1;
}
