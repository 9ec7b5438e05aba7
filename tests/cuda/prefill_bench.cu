// Times the fused prefill kernel on cells of the published grid: random unit keys, a quarter of the
// heads without decay, initial and final states. Medians of launches, each after a sweep of the L2.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_buffers.h"

namespace sluice_test {
namespace {
using namespace sluice::cuda::chunk_forward;

__device__ float uniform(unsigned long long index) {
  unsigned long long z = index + 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (static_cast<float>((z ^ (z >> 31)) >> 40) + 0.5f) / 16777216.0f;
}
__device__ float normal(unsigned long long i) {
  return sqrtf(-2 * logf(uniform(2 * i))) * cospif(2 * uniform(2 * i + 1));
}
/// Rows of 128 normal numbers, divided by their norm if `unit`; one warp a row.
__global__ void fill_rows(__nv_bfloat16* out, long long rows, bool unit, unsigned long long salt) {
  const long long row = blockIdx.x * 8ll + threadIdx.x / 32;
  if (row >= rows) return;
  float x[4], sum = 0;
  for (int i = 0; i < 4; ++i) {
    x[i] = normal(salt + row * 128 + threadIdx.x % 32 + 32 * i);
    sum += x[i] * x[i];
  }
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  for (int i = 0; i < 4; ++i) {
    out[row * 128 + threadIdx.x % 32 + 32 * i] = __float2bfloat16(unit ? x[i] * rsqrtf(sum) : x[i]);
  }
}
__global__ void fill_scalars(float* g, float* beta, long long count, int HV) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= count) return;
  const float x = normal((7ull << 50) + i);
  g[i] = (i % HV) % 4 == 0 ? 0.0f : -log1pf(expf(-x)) / 16;
  beta[i] = 1 / (1 + expf(-normal((9ull << 50) + i)));
}
__global__ void fill_state(float* s, long long count) {
  const long long i = blockIdx.x * 256ll + threadIdx.x;
  if (i < count) s[i] = 0.1f * normal((11ull << 50) + i);
}

struct Cell {
  int H, HV;
  std::vector<int> lengths;
  double goal_ms, peer_ms;
};

std::vector<Cell> cells() {
  const auto same = [](int n, int count) {
    return std::vector<int>(static_cast<size_t>(count), n);
  };
  return {{16, 64, same(8192, 4), .57, .803},  {8, 32, same(8192, 4), .29, .403},
          {16, 64, same(4096, 8), .58, .841},  {16, 64, same(2048, 4), .160, .220},
          {16, 64, same(1024, 8), .165, .232}, {8, 32, same(4096, 8), .29, .424},
          {16, 48, same(8192, 4), .58, .809},  {16, 48, same(4096, 8), .46, .637},
          {8, 32, same(1024, 8), .085, .117},  {8, 32, same(2048, 4), .085, .108},
          {16, 64, {28672, 4096}, 0, 1.364},   {16, 64, same(32768, 1), 0, 1.521}};
}

double median_ms(const ChunkForwardParams& p, const Tiles& tiles, Buffer& workspace, Buffer& sweep,
                 int repeats) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<float> times;
  for (int i = 0; i < repeats + 2; ++i) {
    cudaMemsetAsync(sweep.data, i, sweep.bytes);
    cudaEventRecord(begin);
    launch(p, tiles, workspace.data, nullptr);
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 2) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int bench_cells(const char* path, int repeats) {
  cudaDeviceProp device{};
  cudaGetDeviceProperties(&device, 0);
  FILE* json = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (json != nullptr) {
    std::fprintf(json,
                 "{\"device\": \"%s\", \"op\": \"chunk_forward\", \"dtype\": \"bf16\", "
                 "\"cold_l2\": true, \"repeats\": %d, \"rows\": [",
                 device.name, repeats);
  }
  std::printf("%-8s %-14s %9s %9s %9s %12s %8s\n", "H/HV", "lengths", "ms", "goal", "peer",
              "us/chunk/SM", "TFLOP/s");
  Buffer sweep(256u << 20);
  bool first = true;
  for (const Cell& cell : cells()) {
    int T = 0;
    std::vector<int> cu{0};
    for (int n : cell.lengths) cu.push_back(T += n);
    const int N = static_cast<int>(cell.lengths.size());
    const size_t qrows = size_t(T) * cell.H, vrows = size_t(T) * cell.HV,
                 states = size_t(N) * cell.HV * 16384;
    Buffer q(qrows * 256), k(qrows * 256), v(vrows * 256), o(vrows * 256), g(vrows * 4),
        beta(vrows * 4);
    Buffer s0(states * 4), st(states * 4), workspace(workspace_bytes(N)), cu_device(cu.size() * 4);
    cudaMemcpy(cu_device.data, cu.data(), cu.size() * 4, cudaMemcpyHostToDevice);
    fill_rows<<<unsigned((qrows + 7) / 8), 256>>>(static_cast<__nv_bfloat16*>(q.data), qrows, true,
                                                  1ull << 50);
    fill_rows<<<unsigned((qrows + 7) / 8), 256>>>(static_cast<__nv_bfloat16*>(k.data), qrows, true,
                                                  2ull << 50);
    fill_rows<<<unsigned((vrows + 7) / 8), 256>>>(static_cast<__nv_bfloat16*>(v.data), vrows, false,
                                                  3ull << 50);
    fill_scalars<<<unsigned((vrows + 255) / 256), 256>>>(
        static_cast<float*>(g.data), static_cast<float*>(beta.data), vrows, cell.HV);
    fill_state<<<unsigned((states + 255) / 256), 256>>>(static_cast<float*>(s0.data), states);
    ChunkForwardParams p = basic_params(N, T, cell.H, cell.HV);
    p.gate = token_scalar(g, cell.HV, cell.HV / cell.H);
    p.beta = token_scalar(beta, cell.HV, cell.HV / cell.H);
    p.cu_seqlens = {cu_device.data, 1, false};
    p.initial = {s0.data, int64_t{cell.HV} * 16384, Number::kFloat32};
    p.final = {st.data, int64_t{cell.HV} * 16384, Number::kFloat32};
    const double ms =
        median_ms(p, tiles(q, k, v, o, T, cell.H, cell.HV, true), workspace, sweep, repeats);
    // Chunks of the busiest multiprocessor if whole (sequence, head) units are dealt out evenly.
    const int units = N * cell.HV,
              waves = (units + device.multiProcessorCount - 1) / device.multiProcessorCount;
    const double chunks = double(waves) * cell.lengths[0] / 64;
    const double us = ms * 1e3 / chunks, tflops = vrows * 163840.0 / ms / 1e9;
    char name[64];
    std::snprintf(name, sizeof name, N == 2 ? "%d+%d" : "%dx%d", cell.lengths[0],
                  N == 2 ? cell.lengths[1] : N);
    std::printf("%2d/%-5d %-14s %9.4f %9.3f %9.3f %12.3f %8.0f\n", cell.H, cell.HV, name, ms,
                cell.goal_ms, cell.peer_ms, us, tflops);
    if (json != nullptr) {
      std::fprintf(
          json,
          "%s\n  {\"H\": %d, \"HV\": %d, \"lengths\": \"%s\", \"ms\": %.5f, \"goal_ms\": %.3f, "
          "\"best_peer_ms\": %.3f, \"us_per_chunk_head_sm\": %.4f, \"tflops\": %.1f}",
          first ? "" : ",", cell.H, cell.HV, name, ms, cell.goal_ms, cell.peer_ms, us, tflops);
    }
    first = false;
  }
  if (json != nullptr) {
    std::fprintf(json, "\n]}\n");
    std::fclose(json);
  }
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) std::printf("%s\n", cudaGetErrorName(error));
  return error == cudaSuccess ? 0 : 1;
}

}  // namespace sluice_test
