// Runs matrix products back to back on every multiprocessor.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tools/bench/matmul_probe.h"

namespace sluice::tools {
namespace {

constexpr int kThreads = 256;                    // two warpgroups, as many as keep the unit busy
constexpr int kTileBytes = (64 + 128) * 64 * 2;  // A: 64 x 64, B: 128 x 64 bfloat16
constexpr int kSteps = 8192;                     // of four instructions, k = 64 in all
constexpr int kLaunches = 100;
constexpr double kFlopsPerStep = 2.0 * 64 * 128 * 64;

/// Matrix descriptor of a K-major tile of 128-byte rows, 128-byte swizzle (PTX ISA, "Matrix
/// Descriptor Format").
__device__ uint64_t descriptor(uint32_t address) {
  constexpr uint64_t kStrideOfEightRows = 1024 >> 4, kSwizzle128 = 1;
  return ((address & 0x3ffff) >> 4) | (uint64_t{1} << 16) | (kStrideOfEightRows << 32) |
         (kSwizzle128 << 62);
}

/// d += A B^T (PTX ISA, "wgmma.mma_async").
__device__ void multiply(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, 1, 1, 1, 0, 0;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(kThreads, 1) probe(float* out) {
  extern __shared__ __align__(1024) unsigned char tiles[];
  // bfloat16 of either sign and four exponents: no NaN, and as many bits change as in real data.
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kTileBytes / 2; i += kThreads) {
    uint32_t z = static_cast<uint32_t>(i) * 2654435761u;
    z ^= z >> 15;
    z *= 2246822519u;
    z ^= z >> 13;
    reinterpret_cast<uint16_t*>(tiles)[i] = static_cast<uint16_t>(0x3e00 | (z & 0x81ff));
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(tiles)) +
                    threadIdx.x / 128 * static_cast<uint32_t>(kTileBytes);
  const uint64_t a = descriptor(base), b = descriptor(base + 64 * 64 * 2);
  float d[64] = {};
  for (int step = 0; step < kSteps; ++step) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4; ++k) multiply(d, a + 2 * k, b + 2 * k);  // 32 bytes along the row
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float sum = 0;
  for (const float x : d) sum += x;
  if (sum == 0.125f) *out = sum;  // keeps the work
}

/// Seconds of one launch, the median of the later half; negative if it does not run here.
double median_seconds(int grid, float* out) {
  cudaEvent_t marks[kLaunches + 1];
  for (cudaEvent_t& mark : marks) cudaEventCreate(&mark);
  cudaEventRecord(marks[0]);
  for (int i = 0; i < kLaunches; ++i) {
    probe<<<static_cast<unsigned>(grid), kThreads, 2 * kTileBytes>>>(out);
    cudaEventRecord(marks[i + 1]);
  }
  const bool ran = cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() == cudaSuccess;
  std::vector<float> ms;
  for (int i = kLaunches / 2; i < kLaunches && ran; ++i) {
    cudaEventElapsedTime(&ms.emplace_back(), marks[i], marks[i + 1]);
  }
  for (cudaEvent_t& mark : marks) cudaEventDestroy(mark);
  if (!ran) return -1;
  std::sort(ms.begin(), ms.end());
  return 1e-3 * static_cast<double>(ms[ms.size() / 2]);
}

}  // namespace

double matmul_flops_per_second() {
  int multiprocessors = 0, major = 0;
  float* out = nullptr;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  if (major != 9 || cudaMalloc(&out, sizeof *out) != cudaSuccess) return 0;
  cudaFuncSetAttribute(probe, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * kTileBytes);
  const double seconds = median_seconds(multiprocessors, out);
  cudaFree(out);
  return seconds > 0 ? kFlopsPerStep * kSteps * (kThreads / 128) * multiprocessors / seconds : 0;
}

}  // namespace sluice::tools
