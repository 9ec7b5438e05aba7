// Times gated delta nets on ggml's first CUDA device: microseconds of a node that writes its states into
// a cache, among others of other memory, a line a call. Sluice comes by GGML_BACKEND_PATH, or not at all.
//   time_cuda S H HV {TOKENS SEQUENCES SNAPSHOTS NODES} ..
// SPDX-License-Identifier: Apache-2.0
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int kWarmUp = 4, kRounds = 7, kRepeats = 10;

void fill(ggml_tensor* t, float low, float high) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> numbers(static_cast<size_t>(std::min<int64_t>(ggml_nelements(t), 1 << 20)));
  for (float& x : numbers) x = uniform(random);
  const size_t bytes = numbers.size() * sizeof(float);
  for (size_t at = 0; at < ggml_nbytes(t); at += bytes) {
    ggml_backend_tensor_set(t, numbers.data(), at, std::min(bytes, ggml_nbytes(t) - at));
  }
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Call {
  int64_t S, H, HV, tokens, sequences, snapshots, nodes;
};

/// Whether there was memory for it.
bool time_call(const Call& call, ggml_backend_t backend) {
  const auto [S, H, HV, T, N, snapshots, nodes] = call;
  ggml_context* const context =
      ggml_init({ggml_tensor_overhead() * static_cast<size_t>(16 * nodes) + ggml_graph_overhead(),
                 nullptr, true});
  ggml_cgraph* const graph = ggml_new_graph(context);
  const int64_t row = S * S * HV;
  const size_t bytes = static_cast<size_t>(row) * sizeof(float);
  std::vector<ggml_tensor*> keys, others, gates, writes;
  for (int64_t i = 0; i < nodes; ++i) {
    ggml_tensor* const q = ggml_new_tensor_4d(context, GGML_TYPE_F32, S, H, T, N);
    ggml_tensor* const k = ggml_new_tensor_4d(context, GGML_TYPE_F32, S, H, T, N);
    ggml_tensor* const v = ggml_new_tensor_4d(context, GGML_TYPE_F32, S, HV, T, N);
    ggml_tensor* const g = ggml_new_tensor_4d(context, GGML_TYPE_F32, 1, HV, T, N);
    ggml_tensor* const b = ggml_new_tensor_4d(context, GGML_TYPE_F32, 1, HV, T, N);
    ggml_tensor* const state = ggml_new_tensor_4d(context, GGML_TYPE_F32, S, S, HV, N);
    ggml_tensor* const cache = ggml_new_tensor_2d(context, GGML_TYPE_F32, row, N * snapshots);
    keys.insert(keys.end(), {q, k}), others.insert(others.end(), {v, state});
    gates.push_back(g), writes.push_back(b);
    ggml_tensor* const net = ggml_gated_delta_net(context, q, k, v, g, b, state, snapshots);
    const int64_t written = std::min(T, snapshots);
    const size_t sequences = bytes * static_cast<size_t>(N);
    ggml_tensor* const from = ggml_view_3d(context, net, row, N, written, bytes, sequences,
                                           static_cast<size_t>(S * HV * T * N) * sizeof(float));
    ggml_build_forward_expand(graph, net);
    ggml_build_forward_expand(
        graph, ggml_cpy(context, from,
                        ggml_view_3d(context, cache, row, N, written, bytes, sequences, 0)));
  }
  ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(context, backend);
  if (buffer == nullptr) return false;
  const float key = 1.7f / std::max(1.0f, static_cast<float>(S) / 8.0f);  // of a norm near one
  for (ggml_tensor* t : keys) fill(t, -key, key);
  for (ggml_tensor* t : others) fill(t, -1, 1);
  for (ggml_tensor* t : gates) fill(t, -0.2f, 0);
  for (ggml_tensor* t : writes) fill(t, 0, 1);
  std::vector<double> times;
  for (int round = -kWarmUp; round < kRounds; ++round) {
    const double start = seconds();
    for (int i = 0; i < kRepeats; ++i) ggml_backend_graph_compute_async(backend, graph);
    ggml_backend_synchronize(backend);
    if (round >= 0)
      times.push_back(1e6 * (seconds() - start) / static_cast<double>(kRepeats * nodes));
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"us\": %.3f, \"least\": %.3f, \"most\": %.3f, \"sluice\": %s}\n",
              times[kRounds / 2], times.front(), times.back(),
              ggml_backend_reg_by_name("Sluice") != nullptr ? "true" : "false");
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8 || argc % 4 != 0) {
    return std::puts("time_cuda S H HV {TOKENS SEQUENCES SNAPSHOTS NODES} .."), 1;
  }
  const auto number = [&](int i) { return static_cast<int64_t>(std::atoll(argv[i])); };
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  ggml_backend_dev_t device = ggml_backend_dev_by_name("CUDA0");
  if (device == nullptr) return std::puts("ggml has no CUDA device here"), 1;
  ggml_backend_t backend = ggml_backend_dev_init(device, nullptr);
  for (int i = 4; i < argc; i += 4) {
    const Call call = {number(1),     number(2),     number(3),    number(i),
                       number(i + 1), number(i + 2), number(i + 3)};
    if (!time_call(call, backend)) return std::puts("no memory"), 1;
  }
  ggml_backend_free(backend);
  return 0;
}
