// Makes one prefill call on device memory that a test owns: inputs of a GdnCase in dense device
// tensors, outputs and workspace poisoned with NaN, guard bytes around every tensor.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CUDA_DEVICE_SCENE_HPP_
#define SLUICE_TESTS_CUDA_DEVICE_SCENE_HPP_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/case_runner.hpp"

namespace sluice::check {

/// A dense tensor in device memory with guard bytes on both sides; elements start as 0xff: NaN.
class DeviceTensor {
 public:
  /// Absent.
  DeviceTensor() = default;
  DeviceTensor(sluice_dtype dtype, std::vector<int64_t> shape);
  /// An empty array gives an absent tensor.
  DeviceTensor(sluice_dtype dtype, const Array& values);
  DeviceTensor(DeviceTensor&& other) noexcept;
  DeviceTensor& operator=(DeviceTensor&& other) noexcept;
  ~DeviceTensor();

  const sluice_tensor& view() const noexcept { return view_; }
  size_t size() const noexcept { return bytes_; }
  void assign(const Array& values);
  /// 0xff in every byte.
  void poison();
  /// All elements' bytes; waits for the device.
  std::vector<std::byte> bytes() const;
  Array values() const;
  bool guards_intact() const;

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  sluice_tensor view_{};
};

using ChunkForward = int (*)(const sluice_chunk_forward_args*, sluice_workspace, void*);

/// Device tensors of one case, and its call. Of a GdnCase it takes sizes, lengths, dtypes, scale,
/// qk_norm and the spaces of gates and betas; states are [N,HV,K,V], one slot per sequence.
class DeviceScene {
 public:
  DeviceScene(const GdnCase& gdn_case, const GdnInputs& inputs);

  sluice_chunk_forward_args args() const;
  sluice_workspace workspace() const;
  /// Enqueues the call: a sluice_code.
  int enqueue(cudaStream_t stream = nullptr, ChunkForward function = sluice_chunk_forward) const;
  /// Part of the kernel's name: the one-launch kernel's, unless the environment asks for the generic one.
  static const char* expected_kernel();
  /// Poisons outputs and workspace, calls and waits. Empty, or what went wrong.
  std::string run(ChunkForward function = sluice_chunk_forward);
  void poison_outputs();
  /// Writes other offsets to the same device memory; N stays.
  void set_lengths(const std::vector<int64_t>& lengths);
  /// True if no byte beside any tensor has changed.
  bool guards_intact() const;
  /// What the comparer wants; rows past the last sequence are as they lie in memory.
  GdnOutputs outputs() const;

  /// Bytes of o: rows begin .. end - 1 of one head; all of it without arguments.
  std::vector<std::byte> o_bits(int64_t begin, int64_t end, int64_t head) const;
  std::vector<std::byte> o_bits() const { return o.bytes(); }
  std::vector<std::byte> state_bits(int64_t sequence, int64_t head) const;
  std::vector<std::byte> state_bits() const { return final_state.bytes(); }

  DeviceTensor q, k, v, gate, beta, A_log, dt_bias, cu_seqlens, initial, o, final_state;

 private:
  GdnCase case_;
  DeviceTensor scratch_;
};

/// Sequences (in this order) and key heads first .. first + count - 1 of a packed case, with their
/// value heads, as a case of their own.
struct Excerpt {
  GdnCase gdn_case;
  GdnInputs inputs;
};
Excerpt excerpt_of(const GdnCase& gdn_case, const GdnInputs& inputs,
                   const std::vector<int64_t>& sequences, int64_t first_key_head,
                   int64_t key_heads);

/// bfloat16, K = V = 128, float32 gates and states, packed, sequences whole.
GdnCase prefill_case(const std::string& name, const std::vector<int64_t>& lengths, int64_t H,
                     int64_t HV);

/// Ends the test with a visible reason where there is no Hopper GPU.
#define SLUICE_SKIP_WITHOUT_GPU()                                      \
  do {                                                                 \
    if (!::sluice::check::has_hopper_gpu()) {                          \
      GTEST_SKIP() << "no CUDA device of compute capability 9.0 here"; \
    }                                                                  \
  } while (false)
bool has_hopper_gpu();

}  // namespace sluice::check

#endif  // SLUICE_TESTS_CUDA_DEVICE_SCENE_HPP_
