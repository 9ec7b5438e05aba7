// Allocates device buffers and fills parameters for the prefill checks.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CUDA_CUDA_BUFFERS_H_
#define SLUICE_TESTS_CUDA_CUDA_BUFFERS_H_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <vector>

#include "cuda/chunk_forward/launch.h"

namespace sluice_test {

/// Owned device memory.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  explicit Buffer(size_t size) : bytes(size) { cudaMalloc(&data, size > 0 ? size : 1); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept : data(other.data), bytes(other.bytes) { other.data = nullptr; }
  ~Buffer() { cudaFree(data); }
};

inline double round_to(bool bf16, double x) {
  return bf16 ? double(__bfloat162float(__float2bfloat16_rn(float(x))))
              : double(__half2float(__float2half_rn(float(x))));
}

/// `count` numbers in the io type: `values`, then NaN.
inline Buffer io_buffer(bool bf16, const std::vector<double>& values, size_t count) {
  std::vector<unsigned short> bits(count, 0x7FFF);
  for (size_t i = 0; i < values.size(); ++i) {
    bits[i] = bf16 ? __bfloat16_as_ushort(__float2bfloat16_rn(float(values[i])))
                   : __half_as_ushort(__float2half_rn(float(values[i])));
  }
  Buffer out(count * 2);
  cudaMemcpy(out.data, bits.data(), out.bytes, cudaMemcpyHostToDevice);
  return out;
}

/// `count` float32 numbers: `values`, then NaN.
inline Buffer float_buffer(const std::vector<double>& values, size_t count) {
  std::vector<float> copy(count, NAN);
  for (size_t i = 0; i < values.size(); ++i) copy[i] = float(values[i]);
  Buffer out(count * 4);
  cudaMemcpy(out.data, copy.data(), out.bytes, cudaMemcpyHostToDevice);
  return out;
}

inline std::vector<double> read_io(bool bf16, const Buffer& buffer, size_t count) {
  std::vector<unsigned short> bits(count);
  cudaMemcpy(bits.data(), buffer.data, count * 2, cudaMemcpyDeviceToHost);
  std::vector<double> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = bf16 ? double(__bfloat162float(__ushort_as_bfloat16(bits[i])))
                  : double(__half2float(__ushort_as_half(bits[i])));
  }
  return out;
}

inline std::vector<float> read_floats(const Buffer& buffer, size_t count) {
  std::vector<float> out(count);
  cudaMemcpy(out.data(), buffer.data, count * 4, cudaMemcpyDeviceToHost);
  return out;
}

/// float32 [T,HV] as the kernel wants it.
inline sluice::cuda::device::TokenScalar token_scalar(const Buffer& buffer, int HV, int r) {
  return {buffer.data,    0, int64_t{HV} * 4,
          int64_t{r} * 4, 4, sluice::cuda::device::Number::kFloat32};
}

inline sluice::cuda::device::PrefillParams basic_params(int N, int T, int H, int HV) {
  sluice::cuda::device::PrefillParams p{};
  p.gate_form = sluice::cuda::device::GateForm::kLog;
  p.beta_form = sluice::cuda::device::BetaForm::kValue;
  p.beta_factor = 1;
  p.scale = 1 / std::sqrt(128.0f);
  p.l2norm_eps = 1e-6f;
  p.N = N;
  p.T = T;
  p.H = H;
  p.HV = HV;
  p.r = HV / H;
  p.K = p.V = 128;
  return p;
}

inline sluice::cuda::prefill::MappedTensors tensors(const Buffer& q, const Buffer& k,
                                                    const Buffer& v, const Buffer& o, int T, int H,
                                                    int HV, bool bf16) {
  const auto make = [&](const Buffer& b, int heads) {
    return sluice::cuda::tile::TokenTensor{
        b.data, 1, T, heads, 128, int64_t{T} * heads * 128, int64_t{heads} * 128, 128, bf16};
  };
  return {make(q, H), make(k, H), make(v, HV), make(o, HV)};
}

}  // namespace sluice_test

#endif  // SLUICE_TESTS_CUDA_CUDA_BUFFERS_H_
