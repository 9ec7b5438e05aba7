// Reads gates and betas of single tokens.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_DEVICE_TOKEN_GATES_CUH_
#define SLUICE_CUDA_DEVICE_TOKEN_GATES_CUH_

#include "cuda/device/gate.cuh"
#include "cuda/device/work_items.cuh"
#include "cuda/ptx/stream.cuh"

namespace sluice::cuda::device {

/// Address of a work item's first scalar.
__device__ __forceinline__ const char* scalar_address(const PrefillParams& p, const TokenScalar& t,
                                                      const WorkItem& item) {
  return static_cast<const char*>(t.data) + item.batch * t.batch_bytes + item.row * t.token_bytes +
         (item.head / p.r) * t.group_bytes + (item.head % p.r) * t.member_bytes;
}

/// An element of load_either().
__device__ __forceinline__ float number_of(Number number, const ptx::EitherBits& bits) {
  if (number == Number::kFloat32) return __uint_as_float(bits.wide);
  return from_bits(number, static_cast<unsigned short>(bits.narrow));
}

/// Two consecutive tokens' scalars as they lie in memory.
struct ScalarPair {
  ptx::EitherBits bits[2];
};

/// Requests those at `at`, as far as `left` tokens are left; `t.data` may be null. What is not there is
/// zero. PERF converted where it is used: the caller has other work until it arrives.
__device__ __forceinline__ ScalarPair request_pair(const char* at, const TokenScalar& t, int left) {
  const bool has_32 = t.number == Number::kFloat32;
  if (t.data == nullptr) left = 0;
  return {ptx::load_either(left > 0, at, has_32),
          ptx::load_either(left > 1, at + t.token_bytes, has_32)};
}

}  // namespace sluice::cuda::device

#endif  // SLUICE_CUDA_DEVICE_TOKEN_GATES_CUH_
