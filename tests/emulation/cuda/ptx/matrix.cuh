// Emulates src/cuda/ptx/matrix.cuh: collectives of a warp.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_PTX_MATRIX_CUH_
#define SLUICE_CUDA_PTX_MATRIX_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstring>

#include "emulator.hpp"

namespace sluice::cuda::ptx {

inline uint16_t load_shared_2(uint32_t address) {
  uint16_t x;
  std::memcpy(&x, emulation::shared_at(address), 2);
  return x;
}
inline void store_shared_2(uint32_t address, uint16_t x) {
  std::memcpy(emulation::shared_at(address), &x, 2);
}
inline uint32_t lane_of_thread() { return emulation::thread.x % 32; }

/// Address of row `row` of matrix `m`: that of lane 8 m + row.
inline uint32_t row_address(uint32_t m, uint32_t row) {
  return emulation::exchange().words[8 * m + row][0];
}

inline void ldmatrix_x4(uint32_t* r, uint32_t address) {
  const uint32_t lane = lane_of_thread();
  emulation::exchange().words[lane][0] = address;
  emulation::meet_warp();
  for (uint32_t m = 0; m < 4; ++m) {
    std::memcpy(&r[m], emulation::shared_at(row_address(m, lane / 4) + lane % 4 * 4), 4);
  }
  emulation::meet_warp();
}
inline void ldmatrix_x4_trans(uint32_t* r, uint32_t address) {
  const uint32_t lane = lane_of_thread();
  emulation::exchange().words[lane][0] = address;
  emulation::meet_warp();
  for (uint32_t m = 0; m < 4; ++m) {
    const uint32_t low = load_shared_2(row_address(m, lane % 4 * 2) + lane / 4 * 2);
    const uint32_t high = load_shared_2(row_address(m, lane % 4 * 2 + 1) + lane / 4 * 2);
    r[m] = low | high << 16;
  }
  emulation::meet_warp();
}
inline void stmatrix_x4(uint32_t address, const uint32_t* r) {
  const uint32_t lane = lane_of_thread();
  emulation::exchange().words[lane][0] = address;
  emulation::meet_warp();
  for (uint32_t m = 0; m < 4; ++m) {
    std::memcpy(emulation::shared_at(row_address(m, lane / 4) + lane % 4 * 4), &r[m], 4);
  }
  emulation::meet_warp();
}
inline void stmatrix_x4_trans(uint32_t address, const uint32_t* r) {
  const uint32_t lane = lane_of_thread();
  emulation::exchange().words[lane][0] = address;
  emulation::meet_warp();
  for (uint32_t m = 0; m < 4; ++m) {
    store_shared_2(row_address(m, lane % 4 * 2) + lane / 4 * 2, static_cast<uint16_t>(r[m]));
    store_shared_2(row_address(m, lane % 4 * 2 + 1) + lane / 4 * 2,
                   static_cast<uint16_t>(r[m] >> 16));
  }
  emulation::meet_warp();
}

inline float half_of(uint32_t word, uint32_t index) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(index != 0 ? word >> 16 : word)));
}
inline float bfloat_of(uint32_t word, uint32_t index) {
  return __bfloat162float(
      __ushort_as_bfloat16(static_cast<uint16_t>(index != 0 ? word >> 16 : word)));
}
/// D[16,8] += A[16,8 kWords] B[8 kWords,8]; words of a lane: A by (k / 8, row / 8), then B by k
/// / 8.
template <uint32_t kWords, float (*kNumber)(uint32_t, uint32_t) = half_of>
void multiply_fragments(float* d) {
  const uint32_t lane = lane_of_thread();
  const emulation::Exchange& e = emulation::exchange();
  for (uint32_t at = 0; at < 4; ++at) {
    const uint32_t row = lane / 4, upper = at / 2, column = lane % 4 * 2 + at % 2;
    for (uint32_t k = 0; k < 8 * kWords; ++k) {
      const uint32_t from = k % 8 / 2;
      d[at] += kNumber(e.words[row * 4 + from][k / 8 * 2 + upper], k % 2) *
               kNumber(e.words[column * 4 + from][8 + k / 8], k % 2);
    }
  }
}
template <float (*kNumber)(uint32_t, uint32_t)>
void mma_16(float* d, const uint32_t* a, const uint32_t* b) {
  uint32_t(&words)[16] = emulation::exchange().words[lane_of_thread()];
  for (int i = 0; i < 4; ++i) words[i] = a[i];
  for (int i = 0; i < 2; ++i) words[8 + i] = b[i];
  emulation::meet_warp();
  multiply_fragments<2, kNumber>(d);
  emulation::meet_warp();
}
inline void mma_f16(float* d, const uint32_t* a, const uint32_t* b) { mma_16<half_of>(d, a, b); }
inline void mma_bf16(float* d, const uint32_t* a, const uint32_t* b) { mma_16<bfloat_of>(d, a, b); }
inline void mma_f16_k8(float* d, uint32_t a, uint32_t b) {
  uint32_t(&words)[16] = emulation::exchange().words[lane_of_thread()];
  words[0] = a;
  words[1] = 0;
  words[8] = b;
  emulation::meet_warp();
  multiply_fragments<1>(d);
  emulation::meet_warp();
}
/// Rows and columns that share a lane's numbers are independent; a last-place order of sums is not
/// the hardware's.
inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  constexpr uint32_t kSeen = ~uint32_t{0x1fff};
  const uint32_t lane = lane_of_thread();
  const emulation::Exchange& e = emulation::exchange();
  uint32_t(&words)[16] = emulation::exchange().words[lane];
  for (int i = 0; i < 4; ++i) words[i] = a[i] & kSeen;
  for (int i = 0; i < 2; ++i) words[8 + i] = b[i] & kSeen;
  emulation::meet_warp();
  for (uint32_t at = 0; at < 4; ++at) {
    const uint32_t row = lane / 4, upper = at / 2, column = lane % 4 * 2 + at % 2;
    for (uint32_t k = 0; k < 8; ++k) {
      d[at] += std::bit_cast<float>(e.words[row * 4 + k % 4][k / 4 * 2 + upper]) *
               std::bit_cast<float>(e.words[column * 4 + k % 4][8 + k / 4]);
    }
  }
  emulation::meet_warp();
}
inline void store_shared_4(uint32_t address, uint32_t x) {
  std::memcpy(emulation::shared_at(address), &x, 4);
}
inline void store_shared_16(uint32_t address, const uint32_t (&x)[4]) {
  std::memcpy(emulation::shared_at(address), x, 16);
}

}  // namespace sluice::cuda::ptx

#endif  // SLUICE_CUDA_PTX_MATRIX_CUH_
