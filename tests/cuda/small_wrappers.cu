// Checks the wrappers of lanes, wide loads and stores, clusters and conversions, one number a lane
// and wrapper. A cluster of two CTAs of a warp runs them once; every number is compared on the
// host with what the wrapper's comment promises.
// SPDX-License-Identifier: Apache-2.0
#include "small_wrappers.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "cuda/ptx/address.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/matrix.cuh"
#include "cuda/ptx/stream.cuh"

namespace sluice::check {
namespace {

namespace ptx = sluice::cuda::ptx;

enum Row {
  kSumOfAll,
  kSumOfFour,
  kSumFromBit,
  kFold32,
  kFold16,
  kFromLane,
  kRemote,
  kBf16,
  kF16,
  kExp2,
  kReciprocal,
  kPeek32,
  kPeek64,
  kShared4,
  kShared16,
  kRows
};
constexpr const char* kNames[kRows] = {"sum_over_lanes",
                                       "sum_over_lanes of two bits",
                                       "sum_from_bit",
                                       "fold_over_lanes<32>",
                                       "fold_over_lanes<16>",
                                       "from_lane",
                                       "load_remote",
                                       "pack_bf16",
                                       "pack_f16",
                                       "exp2_fast",
                                       "reciprocal_fast",
                                       "peek_32",
                                       "peek_64",
                                       "store_shared_4",
                                       "store_shared_16"};

constexpr int kLanes = 32, kCtas = 2;
/// Words that each lane copies by store_16, store_stream_16 and store_stream_8.
constexpr int kCopied = 4 + 4 + 2;

__device__ float from_words(uint32_t word, bool is_bf16, int half) {
  const auto bits = static_cast<unsigned short>(half == 0 ? word & 0xffff : word >> 16);
  return is_bf16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                 : __half2float(__ushort_as_half(bits));
}

__global__ void __cluster_dims__(kCtas, 1, 1)
    small_wrappers(const uint32_t* in, uint32_t* copy, float* out) {
  __shared__ float own[kLanes];
  __shared__ __align__(16) uint32_t words[5 * kLanes];
  const int lane = static_cast<int>(threadIdx.x), cta = static_cast<int>(blockIdx.x);
  const int global = cta * kLanes + lane;
  const auto emit = [&](Row row, float x) { out[row * kCtas * kLanes + global] = x; };
  float one[1] = {lane + 1.0f}, two[1] = {lane + 1.0f}, three[1] = {lane + 1.0f}, many[16];
  ptx::sum_over_lanes<0, 5>(one);
  ptx::sum_over_lanes<1, 2>(two);
  ptx::sum_from_bit(3, three);
  emit(kSumOfAll, one[0]), emit(kSumOfFour, two[0]), emit(kSumFromBit, three[0]);
  for (int i = 0; i < 16; ++i) many[i] = static_cast<float>(100 * i + lane);
  emit(kFold32, ptx::fold_over_lanes<32>(many));
  emit(kFold16, ptx::fold_over_lanes<16>(many));
  emit(kFromLane, ptx::from_lane(static_cast<float>(global), kLanes - 1 - lane));
  own[lane] = static_cast<float>(1000 + global);
  ptx::cluster_arrive();
  ptx::cluster_wait();
  emit(kRemote, ptx::load_remote(&own[lane], static_cast<uint32_t>(1 - cta)));
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  const float x = 1.0f + static_cast<float>(global) / 777.0f;
  const uint32_t bf16 = ptx::pack_bf16(x, -x), f16 = ptx::pack_f16(x, -x);
  const bool ordered = from_words(bf16, true, 1) == -from_words(bf16, true, 0) &&
                       from_words(f16, false, 1) == -from_words(f16, false, 0);
  emit(kBf16, ordered ? from_words(bf16, true, 0) : 0), emit(kF16, from_words(f16, false, 0));
  emit(kExp2, ptx::exp2_fast(-x)), emit(kReciprocal, ptx::reciprocal_fast(x));
  const uint32_t* const source = in + kCopied * 2 * global;  // 80 bytes: aligned to 16
  ptx::prefetch_sector(source);
  emit(kPeek32, static_cast<float>(ptx::peek_32(source)));
  emit(kPeek64, static_cast<float>(ptx::peek_64(source) >> 32));
  uint32_t* const target = copy + kCopied * 2 * global;
  const uint64_t policy = ptx::evict_first();
  uint32_t wide[4], narrow[2];
  ptx::load_stream_16(wide, source, policy);
  ptx::store_stream_16(target, wide, policy);
  ptx::load_stream_16(wide, source + 4, policy);
  ptx::store_16(target + 4, make_uint4(wide[0], wide[1], wide[2], wide[3]));
  ptx::load_stream_8(narrow, source + 8, policy);
  ptx::store_stream_8(target + 8, narrow, policy);
  ptx::store_shared_16(ptx::shared_address(words + 4 * lane), wide);
  ptx::store_shared_4(ptx::shared_address(words + 4 * kLanes + lane), narrow[1]);
  __syncwarp();
  emit(kShared16, static_cast<float>(words[4 * (lane ^ 1) + 3]));
  emit(kShared4, static_cast<float>(words[4 * kLanes + (lane ^ 1)]));
}

/// Small enough to be exact in float32.
uint32_t input(int index) { return static_cast<uint32_t>(index * 7 % 100003); }

/// What a lane must have found.
double expected(int row, int cta, int lane) {
  const int global = cta * kLanes + lane, other = cta * kLanes + (lane ^ 1);
  const float x = 1.0f + static_cast<float>(global) / 777.0f;
  const auto sum = [](auto from) {
    double total = 0;
    for (int i = 0; i < kLanes; ++i) total += from(i);
    return total;
  };
  switch (row) {
    case kSumOfAll:
      return 528;
    case kSumOfFour:
      return sum([&](int i) { return ((i ^ lane) & ~6) == 0 ? i + 1 : 0; });
    case kSumFromBit:
      return sum([&](int i) { return ((i ^ lane) & 7) == 0 ? i + 1 : 0; });
    case kFold32:
      return sum([&](int i) { return 100 * (lane % 16) + i; });
    case kFold16:
      return sum([&](int i) { return i / 16 == lane / 16 ? 100 * (lane % 16) + i : 0; });
    case kFromLane:
      return cta * kLanes + kLanes - 1 - lane;
    case kRemote:
      return 1000 + (1 - cta) * kLanes + lane;
    case kBf16:
      return __bfloat162float(__float2bfloat16_rn(x));
    case kF16:
      return __half2float(__float2half_rn(x));
    case kExp2:
      return std::exp2(-double(x));
    case kReciprocal:
      return 1.0 / double(x);
    case kPeek32:
      return input(kCopied * 2 * global);
    case kPeek64:
      return input(kCopied * 2 * global + 1);
    case kShared4:
      return input(kCopied * 2 * other + 9);
    default:
      return input(kCopied * 2 * other + 7);
  }
}

}  // namespace

bool check_small_wrappers() {
  constexpr size_t kWords = size_t{kCopied} * 2 * kCtas * kLanes;
  std::vector<uint32_t> in(kWords), copy(kWords);
  for (size_t i = 0; i < kWords; ++i) in[i] = input(static_cast<int>(i));
  std::vector<float> out(size_t{kRows} * kCtas * kLanes);
  uint32_t *gpu_in, *gpu_copy;
  float* gpu_out;
  cudaMalloc(&gpu_in, 4 * kWords);
  cudaMalloc(&gpu_copy, 4 * kWords);
  cudaMalloc(&gpu_out, 4 * out.size());
  cudaMemcpy(gpu_in, in.data(), 4 * kWords, cudaMemcpyHostToDevice);
  cudaMemset(gpu_copy, 0xff, 4 * kWords);
  small_wrappers<<<kCtas, kLanes>>>(gpu_in, gpu_copy, gpu_out);
  const cudaError_t error = cudaDeviceSynchronize();
  cudaMemcpy(copy.data(), gpu_copy, 4 * kWords, cudaMemcpyDeviceToHost);
  cudaMemcpy(out.data(), gpu_out, 4 * out.size(), cudaMemcpyDeviceToHost);
  bool ok = error == cudaSuccess;
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kCtas * kLanes; ++i) {
      const double truth = expected(row, i / kLanes, i % kLanes);
      const double found = out[static_cast<size_t>(row * kCtas * kLanes + i)];
      // Exact but for the two approximate instructions.
      const bool same = row == kExp2 || row == kReciprocal ? std::fabs(found - truth) < 1e-6 * truth
                                                           : found == truth;
      if (!same) std::printf("%s, lane %d: %g, expected %g\n", kNames[row], i, found, truth);
      ok = ok && same;
    }
  }
  for (size_t i = 0; i < kWords; ++i) {
    const bool copied = i % (2 * kCopied) < kCopied;
    const bool same = copy[i] == (copied ? in[i] : ~uint32_t{0});
    if (!same) std::printf("copied word %zu: %u\n", i, copy[i]);
    ok = ok && same;
  }
  std::printf("small wrappers %s: %d, %s\n", ok ? "ok" : "FAILED", kRows, cudaGetErrorName(error));
  return ok;
}

}  // namespace sluice::check
