// Checks that every wgmma shape, operand source and tile orientation that the kernels use
// multiplies known matrices correctly, and that ldmatrix and stmatrix agree with the swizzle of the
// copy engine. One warpgroup per test loads tiles by tensor maps, and every element is compared on
// the host.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile/number.cuh"
#include "cuda/tile/swizzle.hpp"
#include "cuda/tile/tensor_map.h"
#include "small_wrappers.h"

namespace {
namespace ptx = sluice::cuda::ptx;
namespace tile = sluice::cuda::tile;

constexpr int kHalf = 64 * 128;

/// out[0]: X Y^T (SS). out[1]: X Y^T with X in registers. out[2]: X[:, :64]^T as registers times Y
/// with rows as the reduction dimension. out[3]: X written back through ldmatrix, stmatrix, TMA.
template <class Io>
__global__ void wrappers(const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ CUtensorMap y_map,
                         const __grid_constant__ CUtensorMap copy_map, float* out) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ uint64_t barrier;
  uint8_t *x = shared, *y = shared + 2 * kHalf, *z = shared + 4 * kHalf;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  if (thread == 0) {
    ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (thread == 0) {
    ptx::mbarrier_arrive_expect(&barrier, 4 * kHalf);
    ptx::tma_load(x, &x_map, {0, 0, 0, 0, 0}, &barrier);
    ptx::tma_load(y, &y_map, {0, 0, 0, 0, 0}, &barrier);
  }
  ptx::mbarrier_wait(&barrier, 0);
  const auto write = [&](float* to, const float* acc, int columns) {
    for (int i = 0; i < columns / 2; ++i) {
      const int row = warp * 16 + lane / 4 + 8 * ((i >> 1) & 1);
      to[row * columns + (i >> 2) * 8 + (lane % 4) * 2 + (i & 1)] = acc[i];
    }
  };
  const uint64_t dx = tile::k_major(ptx::shared_address(x)),
                 dy = tile::k_major(ptx::shared_address(y));
  float acc[32];
  ptx::wgmma_fence();
#pragma unroll
  for (uint32_t s = 0; s < 8; ++s) {
    const uint32_t at = (s / 4) * kHalf + (s % 4) * 32;
    ptx::wgmma_ss<ptx::Major::kK, ptx::Major::kK>(Io{}, acc, tile::advance(dx, at),
                                                  tile::advance(dy, at), s != 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(acc);
  write(out, acc, 64);
  uint32_t a[32];
#pragma unroll
  for (uint32_t s = 0; s < 8; ++s) {
    ptx::ldmatrix_x4(a + 4 * s,
                     ptx::shared_address(x) + (s / 4) * kHalf +
                         tile::swizzled_piece(warp * 16 + (lane & 15), (s % 4) * 2 + lane / 16));
  }
  ptx::wgmma_fence();
  ptx::wgmma_rs<0, ptx::Major::kK>(Io{}, acc, a, dy, 0);
  ptx::wgmma_rs<4, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, 32), 1);
  ptx::wgmma_rs<8, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, 64), 1);
  ptx::wgmma_rs<12, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, 96), 1);
  ptx::wgmma_rs<16, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, kHalf), 1);
  ptx::wgmma_rs<20, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, kHalf + 32), 1);
  ptx::wgmma_rs<24, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, kHalf + 64), 1);
  ptx::wgmma_rs<28, ptx::Major::kK>(Io{}, acc, a, tile::advance(dy, kHalf + 96), 1);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(acc);
  write(out + 4096, acc, 64);
  uint32_t t[16];
#pragma unroll
  for (uint32_t p = 0; p < 4; ++p) {
    const uint32_t at =
        p * 2048 + tile::swizzled_piece((lane & 7) + 8 * (lane >> 4), 2 * warp + ((lane >> 3) & 1));
    ptx::ldmatrix_x4_trans(t + 4 * p, ptx::shared_address(x) + at);
    ptx::stmatrix_x4_trans(ptx::shared_address(z) + at, t + 4 * p);
  }
  float wide[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) wide[i] = 0;
  const uint64_t dm = tile::mn_major(ptx::shared_address(y), kHalf);
  ptx::wgmma_fence();
  ptx::wgmma_rs<0, ptx::Major::kMn>(Io{}, wide, t, dm, 1);
  ptx::wgmma_rs<4, ptx::Major::kMn>(Io{}, wide, t, tile::advance(dm, 2048), 1);
  ptx::wgmma_rs<8, ptx::Major::kMn>(Io{}, wide, t, tile::advance(dm, 4096), 1);
  ptx::wgmma_rs<12, ptx::Major::kMn>(Io{}, wide, t, tile::advance(dm, 6144), 1);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(wide);
  write(out + 8192, wide, 128);
#pragma unroll
  for (int i = 0; i < 32; ++i) acc[i] = 0;
  ptx::wgmma_fence();
  ptx::wgmma_rs<0, ptx::Major::kMn>(Io{}, acc, t, dm, 1);
  ptx::wgmma_rs<4, ptx::Major::kMn>(Io{}, acc, t, tile::advance(dm, 2048), 1);
  ptx::wgmma_rs<8, ptx::Major::kMn>(Io{}, acc, t, tile::advance(dm, 4096), 1);
  ptx::wgmma_rs<12, ptx::Major::kMn>(Io{}, acc, t, tile::advance(dm, 6144), 1);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(acc);
  write(out + 16384, acc, 64);
  ptx::fence_proxy_async();
  __syncthreads();
  if (thread == 0) {
    ptx::tma_store(&copy_map, z, {0, 0, 0, 0, 0});
    ptx::bulk_commit();
    ptx::bulk_wait_read();
  }
}

/// Numbers that `wrappers` writes: three [64,64] products and one [64,128].
constexpr size_t kResults = 3 * 4096 + 8192;

template <class Io>
bool check(bool is_bf16, const char* name) {
  std::vector<Io> x(64 * 128), y(64 * 128), copy(64 * 128);
  for (int i = 0; i < 64 * 128; ++i) {
    x[i] = Io(static_cast<float>((i * 37 + 11) % 61) / 61.0f - 0.5f);
    y[i] = Io(static_cast<float>((i * 53 + 7) % 67) / 67.0f - 0.5f);
  }
  Io *gx, *gy, *gc;
  float* gout;
  cudaMalloc(&gx, 16384);
  cudaMalloc(&gy, 16384);
  cudaMalloc(&gc, 16384);
  cudaMalloc(&gout, kResults * 4);
  cudaMemcpy(gx, x.data(), 16384, cudaMemcpyHostToDevice);
  cudaMemcpy(gy, y.data(), 16384, cudaMemcpyHostToDevice);
  cudaMemset(gc, 0xFF, 16384);
  CUtensorMap maps[3];
  tile::TokenTensor tensor{gx, 1, 64, 1, 128, 0, 128, 128, is_bf16};
  bool ok = tile::encode_token_map(&maps[0], tensor, 64, 2);
  tensor.data = gy;
  ok = ok && tile::encode_token_map(&maps[1], tensor, 64, 2);
  tensor.data = gc;
  ok = ok && tile::encode_token_map(&maps[2], tensor, 64, 1);
  cudaFuncSetAttribute(wrappers<Io>, cudaFuncAttributeMaxDynamicSharedMemorySize, 5 * kHalf);
  wrappers<Io><<<1, 128, 5 * kHalf>>>(maps[0], maps[1], maps[2], gout);
  const cudaError_t error = cudaDeviceSynchronize();
  std::vector<float> out(kResults);
  cudaMemcpy(out.data(), gout, out.size() * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(copy.data(), gc, 16384, cudaMemcpyDeviceToHost);
  double worst[5] = {};
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < 128; ++j) {
      double rows = 0, columns = 0;
      for (int k = 0; k < 128; ++k) {
        rows += j < 64 ? double(float(x[i * 128 + k])) * double(float(y[j * 128 + k])) : 0;
      }
      for (int k = 0; k < 64; ++k) {
        columns += double(float(x[k * 128 + i])) * double(float(y[k * 128 + j]));
      }
      if (j < 64) {
        worst[0] = std::fmax(worst[0], std::fabs(out[i * 64 + j] - rows));
        worst[1] = std::fmax(worst[1], std::fabs(out[4096 + i * 64 + j] - rows));
        worst[4] = std::fmax(worst[4], std::fabs(out[16384 + i * 64 + j] - columns));
        worst[3] = std::fmax(worst[3], std::fabs(float(copy[i * 128 + j]) - float(x[i * 128 + j])));
      }
      worst[2] = std::fmax(worst[2], std::fabs(out[8192 + i * 128 + j] - columns));
    }
  }
  for (double w : worst) ok = ok && w < 1e-4;
  ok = ok && error == cudaSuccess;
  std::printf(
      "%-5s wrappers %s: SS %.1e, RS %.1e, RS MN-major %.1e %.1e, transposed copy %.1e, "
      "%s\n",
      name, ok ? "ok" : "FAILED", worst[0], worst[1], worst[2], worst[4], worst[3],
      cudaGetErrorName(error));
  return ok;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 77;  // skipped
  const bool ok = check<__nv_bfloat16>(true, "bf16") & check<__half>(false, "fp16") &
                  sluice::check::check_small_wrappers();
  return ok ? 0 : 1;
}
