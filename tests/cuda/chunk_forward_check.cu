// Checks the one-launch prefill kernel against the recurrence in double. Each case poisons its outputs,
// compares o (whole, worst head, worst 64-token window) and final states, and reports relative L2
// errors; --small keeps to small cases (for compute-sanitizer).
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda/chunk_forward/launch.h"
#include "cuda_buffers.h"

namespace {
using namespace sluice::cuda;
using namespace sluice::cuda::device;
using namespace sluice::cuda::prefill;
using sluice_test::Buffer;
using sluice_test::round_to;

enum class Gates { kZero, kSlow, kMixed, kStrong, kResets };
enum class Keys { kRandom, kCorrelated, kVeryCorrelated };

struct Case {
  const char* name;
  std::vector<int> lengths;
  int H, HV;
  Gates gates = Gates::kMixed;
  Keys keys = Keys::kRandom;
  bool bf16 = true, h0 = true, vk = false, l2norm = false, beta_zero = false;
};

struct Host {
  int T = 0;
  std::vector<double> q, k, v, g, beta, h0, o, ht;
};

Host make_inputs(const Case& c, unsigned seed) {
  Host x;
  for (int n : c.lengths) x.T += n;
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  const auto rows = [&](std::vector<double>& out, size_t count, bool key) {
    out.resize(count * 128);
    for (size_t r = 0; r < count; ++r) {
      double norm = 0;
      for (int d = 0; d < 128; ++d) {
        double value = normal(rng);
        if (key && c.keys == Keys::kCorrelated) value = uniform(rng);
        if (key && c.keys == Keys::kVeryCorrelated) value = 1 + 0.33 * value;
        out[r * 128 + d] = value;
        norm += value * value;
      }
      const double factor = c.l2norm ? 0.5 : 1 / std::sqrt(norm);
      for (int d = 0; d < 128; ++d) out[r * 128 + d] = round_to(c.bf16, out[r * 128 + d] * factor);
    }
  };
  const size_t T = x.T, N = c.lengths.size();
  rows(x.q, T * c.H, false);
  rows(x.k, T * c.H, true);
  x.v.resize(T * c.HV * 128);
  for (double& v : x.v) v = round_to(c.bf16, normal(rng));
  x.g.resize(T * c.HV);
  x.beta.resize(T * c.HV);
  for (size_t i = 0; i < x.g.size(); ++i) {
    const int head = static_cast<int>(i % c.HV);
    const double logsigmoid = -std::log1p(std::exp(-normal(rng)));
    double g = 0;
    if (c.gates == Gates::kSlow) g = -1e-3 * (0.5 + uniform(rng));
    if (c.gates == Gates::kMixed && head % 4 != 0) g = logsigmoid / 16;
    if (c.gates == Gates::kStrong) g = logsigmoid;
    if (c.gates == Gates::kResets)
      g = uniform(rng) < 0.05 ? (uniform(rng) < 0.5 ? -80 : -INFINITY) : -1e-3;
    x.g[i] = static_cast<float>(g);
    x.beta[i] = c.beta_zero ? 0
                            : static_cast<float>(c.keys == Keys::kVeryCorrelated
                                                     ? 0.95
                                                     : 1 / (1 + std::exp(-normal(rng))));
  }
  x.h0.resize(N * c.HV * 128 * 128);
  for (double& s : x.h0) s = c.h0 ? static_cast<float>(0.1 * normal(rng)) : 0;
  return x;
}

/// The recurrence, token by token; states as [K,V].
void reference(const Case& c, Host& x) {
  x.o.assign(x.v.size(), 0);
  x.ht = x.h0;
  std::vector<int> first(c.lengths.size() + 1, 0);
  for (size_t n = 0; n < c.lengths.size(); ++n) first[n + 1] = first[n] + c.lengths[n];
  std::atomic<int> next{0};
  const int units = static_cast<int>(c.lengths.size()) * c.HV;
  const auto work = [&] {
    std::vector<double> q(128), k(128), sk(128);
    for (int unit = next++; unit < units; unit = next++) {
      const int n = unit / c.HV, h = unit % c.HV, group = h / (c.HV / c.H);
      double* S = &x.ht[static_cast<size_t>(unit) * 128 * 128];
      for (int t = first[n]; t < first[n + 1]; ++t) {
        double nq = 0, nk = 0;
        for (int d = 0; d < 128; ++d) {
          q[d] = x.q[(static_cast<size_t>(t) * c.H + group) * 128 + d];
          k[d] = x.k[(static_cast<size_t>(t) * c.H + group) * 128 + d];
          nq += q[d] * q[d];
          nk += k[d] * k[d];
        }
        if (c.l2norm) {
          for (int d = 0; d < 128; ++d) q[d] /= std::sqrt(nq + 1e-6), k[d] /= std::sqrt(nk + 1e-6);
        }
        const size_t at = static_cast<size_t>(t) * c.HV + h;
        const double alpha = std::exp(x.g[at]), beta = x.beta[at];
        std::fill(sk.begin(), sk.end(), 0.0);
        for (int d = 0; d < 128; ++d) {
          for (int e = 0; e < 128; ++e) sk[e] += (S[d * 128 + e] *= alpha) * k[d];
        }
        for (int e = 0; e < 128; ++e) sk[e] = beta * (x.v[at * 128 + e] - sk[e]);
        double* o = &x.o[at * 128];
        for (int d = 0; d < 128; ++d) {
          for (int e = 0; e < 128; ++e) o[e] += (S[d * 128 + e] += k[d] * sk[e]) * q[d];
        }
        for (int e = 0; e < 128; ++e) o[e] /= std::sqrt(128.0);
      }
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    pool.emplace_back(work);
  for (auto& thread : pool) thread.join();
}

struct Error {
  double whole = 0, head = 0, window = 0;
};

double ratio(double difference, double norm) {
  if (std::isnan(difference)) return INFINITY;
  return norm > 0 ? std::sqrt(difference / norm) : (difference > 0 ? INFINITY : 0);
}

Error compare_output(const Case& c, const Host& x, const std::vector<double>& o) {
  double all = 0, all_norm = 0;
  Error e;
  int first = 0;
  for (int length : c.lengths) {
    for (int h = 0; h < c.HV; ++h) {
      double head = 0, head_norm = 0;
      for (int t0 = 0; t0 < length; t0 += 64) {
        double window = 0, window_norm = 0;
        for (int t = t0; t < std::min(t0 + 64, length); ++t) {
          for (int d = 0; d < 128; ++d) {
            const size_t at = ((static_cast<size_t>(first) + t) * c.HV + h) * 128 + d;
            window += (o[at] - x.o[at]) * (o[at] - x.o[at]);
            window_norm += x.o[at] * x.o[at];
          }
        }
        e.window = std::max(e.window, ratio(window, window_norm));
        head += window;
        head_norm += window_norm;
      }
      e.head = std::max(e.head, ratio(head, head_norm));
      all += head;
      all_norm += head_norm;
    }
    first += length;
  }
  e.whole = ratio(all, all_norm);
  return e;
}

double compare_state(const Case& c, const Host& x, const std::vector<float>& ht) {
  double worst = 0;
  for (size_t unit = 0; unit < c.lengths.size() * c.HV; ++unit) {
    double sum = 0, norm = 0;
    for (int k = 0; k < 128; ++k) {
      for (int v = 0; v < 128; ++v) {
        const double ref = x.ht[unit * 16384 + k * 128 + v];
        const double got = ht[unit * 16384 + (c.vk ? v * 128 + k : k * 128 + v)];
        sum += (got - ref) * (got - ref);
        norm += ref * ref;
      }
    }
    worst = std::max(worst, ratio(sum, norm));
  }
  return worst;
}

/// How sequences are spread over the GPU.
struct Way {
  const char* name;
  CutRule rule;
  int segments, columns;
  bool may_forget;
};
constexpr Way kWays[] = {{"", CutRule::kWhole, 0, 128, false},
                         {"columns", CutRule::kWhole, 0, 64, false},
                         {"segments", CutRule::kCount, 3, 128, false},
                         {"forget", CutRule::kCount, 4, 64, true}};

CutRequest request_of(const Way& way, int N) {
  int device = 0;
  CutRequest request;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&request.multiprocessors, cudaDevAttrMultiProcessorCount, device);
  request.rule = way.rule;
  request.count = way.segments;
  request.columns = way.columns;
  request.transition_columns = 128;
  request.most_boundaries = way.segments > 0 ? N * (way.segments - 1) : 0;
  request.may_forget = way.may_forget;
  return request;
}

bool run_case(const Case& c, const Way& way, std::string& json) {
  Host x = make_inputs(c, 1234);
  reference(c, x);
  const int N = static_cast<int>(c.lengths.size());
  std::vector<int> cu(N + 1, 0);
  for (int n = 0; n < N; ++n) cu[n + 1] = cu[n] + c.lengths[n];
  // Rows past the last sequence, and the rows of the next one, must not matter: poison the former.
  const int T = x.T + 70;
  const auto io = [&](const std::vector<double>& values, size_t row) {
    return sluice_test::io_buffer(c.bf16, values, T * row);
  };
  const Buffer q = io(x.q, c.H * 128), k = io(x.k, c.H * 128), v = io(x.v, c.HV * 128);
  Buffer o(static_cast<size_t>(T) * c.HV * 128 * 2);
  cudaMemset(o.data, 0xFF, o.bytes);
  std::vector<double> h0 = x.h0;
  if (c.vk) {
    for (size_t u = 0; u < h0.size() / 16384; ++u) {
      for (int i = 0; i < 16384; ++i)
        h0[u * 16384 + (i % 128) * 128 + i / 128] = x.h0[u * 16384 + i];
    }
  }
  const Buffer g = sluice_test::float_buffer(x.g, T * c.HV),
               beta = sluice_test::float_buffer(x.beta, T * c.HV);
  const Buffer s0 = sluice_test::float_buffer(h0, h0.size());
  const CutRequest request = request_of(way, N);
  Buffer st(h0.size() * 4 + 16), cu_device(cu.size() * 4),
      workspace(segment_workspace(N, c.HV, 128, 128, request.most_boundaries).end);
  const Buffer norms(sizeof(float) * 2 * c.H * T);
  cudaMemset(st.data, 0xFF, st.bytes);
  cudaMemset(norms.data, 0xFF, norms.bytes);
  cudaMemset(workspace.data, 0xFF, workspace.bytes);
  cudaMemcpy(cu_device.data, cu.data(), cu.size() * 4, cudaMemcpyHostToDevice);
  PrefillParams p = sluice_test::basic_params(N, T, c.H, c.HV);
  p.gate = sluice_test::token_scalar(g, c.HV, c.HV / c.H);
  p.beta = sluice_test::token_scalar(beta, c.HV, c.HV / c.H);
  p.cu_seqlens = {cu_device.data, 1, false};
  if (c.h0) p.initial = {s0.data, int64_t{c.HV} * 16384, Number::kFloat32};
  p.final = {st.data, int64_t{c.HV} * 16384, Number::kFloat32};
  p.state_is_vk = c.vk;
  p.segments.cut = request;
  MappedTensors tensors = sluice_test::tensors(q, k, v, o, T, c.H, c.HV, c.bf16);
  tensors.l2norm = c.l2norm;
  if (c.l2norm) p.prepared.norms = static_cast<float*>(norms.data);
  int device = 0;
  cudaGetDevice(&device);
  const Machine machine = machine_of(device);
  const auto enqueue = [&] {
    Launcher launcher("chunk_forward", machine, nullptr);
    launch(p, tensors, workspace.data, launcher);
    return launcher.ok();
  };
  const bool launched = enqueue();
  const int error = cudaDeviceSynchronize();
  const std::vector<double> out = sluice_test::read_io(c.bf16, o, x.o.size());
  const Error e = compare_output(c, x, out);
  const double es = compare_state(c, x, sluice_test::read_floats(st, h0.size()));
  bool same = launched && error == 0;
  for (int repeat = 0; repeat < 3 && same; ++repeat) {
    enqueue();
    same = sluice_test::read_io(c.bf16, o, x.o.size()) == out;
  }
  const double cap = (c.bf16 ? 0.005 : 0.0008) * (c.keys == Keys::kRandom ? 1 : 3.2);
  const bool ok = same && e.whole <= cap && es <= cap * 1.4;
  std::printf("%-22s %-8s %-6s o %.2e head %.2e window %.2e state %.2e %s%s\n", c.name, way.name,
              ok ? "ok" : "FAILED", e.whole, e.head, e.window, es, same ? "" : "bits differ ",
              error ? cudaGetErrorName(static_cast<cudaError_t>(error)) : "");
  char line[400];
  std::snprintf(
      line, sizeof line,
      "%s\n  {\"case\": \"%s\", \"way\": \"%s\", \"ok\": %s, \"o\": %.3e, \"worst_head\": %.3e, "
      "\"worst_window\": %.3e, \"worst_state\": %.3e}",
      json.empty() ? "" : ",", c.name, way.name, ok ? "true" : "false", e.whole, e.head, e.window,
      es);
  json += line;
  return ok;
}

std::vector<Case> cases() {
  using G = Gates;
  using K = Keys;
  return {
      {"read only", {64}, 1, 1, G::kStrong, K::kRandom, true, true, false, false, true},
      {"one chunk, no state", {64}, 1, 1, G::kZero, K::kRandom, true, false},
      {"one chunk", {64}, 1, 1},
      {"four chunks", {256}, 1, 2},
      {"tail 1", {65}, 1, 1},
      {"tails", {1, 15, 17, 63, 64, 65, 127, 0, 129, 193}, 2, 4},
      {"mixed gates", {1000, 500}, 2, 8},
      {"g = 0", {1000, 512}, 2, 4, G::kZero},
      {"slow gates", {1024, 700}, 2, 4, G::kSlow},
      {"strong gates", {1024, 96}, 2, 4, G::kStrong},
      {"resets, -inf", {1024, 96}, 2, 4, G::kResets},
      {"cos .75, slow", {1024, 96}, 2, 4, G::kSlow, K::kCorrelated},
      {"cos .75, g = 0", {1024, 96}, 2, 4, G::kZero, K::kCorrelated},
      {"cos .90, slow", {1024, 96}, 2, 4, G::kSlow, K::kVeryCorrelated},
      {"vk state, r = 3", {300, 100, 0, 64}, 2, 6, G::kMixed, K::kRandom, true, true, true},
      {"l2norm", {300, 100, 64}, 2, 4, G::kMixed, K::kRandom, true, true, false, true},
      {"fp16", {1000, 333}, 2, 4, G::kMixed, K::kRandom, false},
      {"fp16 cos .75, slow", {1000, 333}, 2, 4, G::kSlow, K::kCorrelated, false},
      {"300 units", std::vector<int>(75, 130), 2, 4},
  };
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 77;  // skipped
  std::string json;
  bool ok = true;
  const bool small = argc > 1 && std::strcmp(argv[1], "--small") == 0;
  for (const Case& c : cases()) {
    int tokens = 0;
    for (int n : c.lengths) tokens += n;
    for (const Way& way : kWays) {
      if (!small || tokens <= 700) ok &= run_case(c, way, json);
    }
  }
  if (argc > 1 && !small) {
    if (FILE* file = std::fopen(argv[1], "w")) {
      std::fprintf(file,
                   "{\"kernel\": \"chunk_forward sm_90a\", \"metric\": \"relative L2 against the "
                   "recurrence in double\", \"cases\": [%s\n]}\n",
                   json.c_str());
      std::fclose(file);
    }
  }
  std::printf("%s\n", ok ? "all ok" : "FAILED");
  return ok ? 0 : 1;
}
