// Checks that the C interface reaches the CUDA kernel with every option lowered as the reference
// reads it. Each case runs on CPU views by the float64 reference and on CUDA views by the kernel,
// and compares o and final states by relative L2 error.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "sluice/sluice.h"

namespace {

constexpr int kT = 200, kH = 2, kHV = 4, kSlots = 6;
constexpr size_t kWide = (2 * kH + kHV) * 128;  // one row of a fused q | k | v projection

unsigned short to_bf16(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<unsigned short>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
double from_bf16(unsigned short x) {
  const unsigned bits = static_cast<unsigned>(x) << 16;
  float y;
  std::memcpy(&y, &bits, 4);
  return y;
}

/// The same bytes on the CPU and on the device.
struct Twin {
  std::vector<unsigned char> host;
  void* device = nullptr;
  template <class T>
  explicit Twin(const std::vector<T>& values) : host(values.size() * sizeof(T)) {
    std::memcpy(host.data(), values.data(), host.size());
    cudaMalloc(&device, host.size());
    cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice);
  }
};

sluice_tensor view(Twin& twin, bool cuda, sluice_dtype dtype, size_t offset,
                   std::vector<int64_t> shape, std::vector<int64_t> stride) {
  sluice_tensor t{};
  t.data = (cuda ? static_cast<unsigned char*>(twin.device) : twin.host.data()) + offset;
  t.device = {cuda ? SLUICE_DEVICE_CUDA : SLUICE_DEVICE_CPU, 0};
  t.dtype = dtype;
  t.rank = static_cast<uint16_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) t.shape[i] = shape[i], t.stride[i] = stride[i];
  return t;
}

struct Options {
  const char* name;
  bool raw, norm, dense, slots, vk, cyclic;
};

double relative(const std::vector<double>& got, const std::vector<double>& want) {
  double sum = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    sum += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::isnan(sum) ? INFINITY : std::sqrt(sum / norm);
}

bool run(const Options& x) {
  constexpr sluice_dtype bf16{4, 16}, f32{2, 32}, i32{0, 32};
  std::mt19937 rng(7);
  std::normal_distribution<float> normal;
  std::vector<unsigned short> wide(kT * kWide);
  for (auto& w : wide) w = to_bf16(normal(rng) * (x.norm ? 1.0f : 0.088f));
  std::vector<float> gate(kT * kHV), beta(kT * kHV), rate(kHV), bias(kHV),
      pool(kSlots * kHV * 16384);
  for (auto& g : gate) g = x.raw ? normal(rng) : -0.1f * std::fabs(normal(rng));
  for (auto& b : beta) b = x.raw ? normal(rng) : 0.5f;
  for (auto& a : rate) a = normal(rng) - 2;
  for (auto& d : bias) d = normal(rng);
  for (auto& s : pool) s = 0.1f * normal(rng);
  Twin qkv(wide), gates(gate), betas(beta), rates(rate), biases(bias), states(pool);
  Twin out(std::vector<unsigned short>(kT * kHV * 128, 0)), cu(std::vector<int>{0, 70, 70, kT});
  Twin slots(std::vector<int>{4, -1, 1});
  std::vector<double> o[2], s[2];
  for (int cuda = 0; cuda < 2; ++cuda) {
    const int64_t B = x.dense ? 2 : 1, T = kT / B, wide_row = kWide;
    const auto heads = [&](size_t first, int64_t n) {
      return view(qkv, cuda, bf16, first * 256, {B, T, n, 128}, {T * wide_row, wide_row, 128, 1});
    };
    sluice_chunk_forward_args a{};
    a.struct_size = sizeof a;
    a.q = heads(0, kH);
    a.k = heads(kH, kH);
    a.v = heads(2 * kH, kHV);
    a.gate = view(gates, cuda, f32, 0, {B, T, kHV}, {T * kHV, kHV, 1});
    a.beta = view(betas, cuda, f32, 0, {B, T, kHV}, {T * kHV, kHV, 1});
    a.o = view(out, cuda, bf16, 0, {B, T, kHV, 128}, {T * kHV * 128, kHV * 128, 128, 1});
    if (x.raw) {
      a.A_log = view(rates, cuda, f32, 0, {kHV}, {1});
      a.dt_bias = view(biases, cuda, f32, 0, {kHV}, {1});
      a.options.gate_space = SLUICE_GATE_RAW;
      a.options.beta_space = SLUICE_BETA_LOGIT;
    }
    if (!x.dense) a.cu_seqlens = view(cu, cuda, i32, 0, {4}, {1});
    a.state.initial =
        view(states, cuda, f32, 0, {kSlots, kHV, 128, 128}, {kHV * 16384, 16384, 128, 1});
    a.state.final = a.state.initial;
    if (x.slots) a.state.read_slots = view(slots, cuda, i32, 0, {3}, {1});
    a.state.layout = x.vk ? SLUICE_STATE_VK : SLUICE_STATE_KV;
    a.options.qk_norm = x.norm ? SLUICE_QK_NORM_L2 : SLUICE_QK_NORM_NONE;
    a.options.head_map = x.cyclic ? SLUICE_HEAD_MAP_CYCLIC : SLUICE_HEAD_MAP_BLOCK;
    a.implementation = cuda ? SLUICE_IMPL_CUDA : SLUICE_IMPL_REFERENCE;
    size_t bytes = 0;
    int code = sluice_workspace_size(SLUICE_OP_CHUNK_FORWARD, &a, &bytes);
    Twin scratch(std::vector<unsigned char>(bytes + 256, 0xFF));
    std::vector<unsigned char> host_scratch(bytes + 512);
    auto* aligned = reinterpret_cast<unsigned char*>(
        (reinterpret_cast<uintptr_t>(host_scratch.data()) + 255) / 256 * 256);
    const sluice_workspace workspace{cuda ? scratch.device : aligned, bytes};
    if (code == 0) code = sluice_chunk_forward(&a, workspace, nullptr);
    if (code != 0 || (cuda && cudaDeviceSynchronize() != cudaSuccess)) {
      std::printf("%-28s FAILED: %s\n", x.name, sluice_last_error());
      return false;
    }
    if (cuda) {
      cudaMemcpy(out.host.data(), out.device, out.host.size(), cudaMemcpyDeviceToHost);
      cudaMemcpy(states.host.data(), states.device, states.host.size(), cudaMemcpyDeviceToHost);
    }
    for (size_t i = 0; i < out.host.size(); i += 2) {
      unsigned short bits;
      std::memcpy(&bits, &out.host[i], 2);
      o[cuda].push_back(from_bf16(bits));
    }
    for (size_t i = 0; i < states.host.size(); i += 4) {
      float value;
      std::memcpy(&value, &states.host[i], 4);
      s[cuda].push_back(value);
    }
    std::memcpy(states.host.data(), pool.data(), states.host.size());
  }
  const double eo = relative(o[1], o[0]), es = relative(s[1], s[0]);
  const bool ok = eo < 0.008 && es < 0.006;
  std::printf("%-28s %s o %.2e states %.2e\n", x.name, ok ? "ok" : "FAILED", eo, es);
  return ok;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 77;  // skipped
  const Options all[] = {{"packed", false, false, false, false, false, false},
                         {"dense batch", false, false, true, false, false, false},
                         {"raw gates, logits, l2norm", true, true, false, false, false, false},
                         {"slots with padding", false, false, false, true, false, false},
                         {"vk states, cyclic heads", true, true, false, true, true, true}};
  bool ok = true;
  for (const Options& x : all) ok &= run(x);
  return ok ? 0 : 1;
}
