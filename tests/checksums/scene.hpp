// Makes one case: tensors with pseudo-random contents on a device, calls, and a checksum for each
// tensor that the calls write. Values are small integers times a power of two, so that every
// element type holds them exactly and no math library takes part in making them.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_CHECKSUMS_SCENE_HPP_
#define SLUICE_TESTS_CHECKSUMS_SCENE_HPP_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device.hpp"
#include "sluice/sluice.hpp"

namespace sluice::checksums {

/// Values n * 2^exponent, low <= n <= high, |n| < 256; float32 has twelve bits more below n.
struct Range {
  int low = -128, high = 127, exponent = -7;
};
inline constexpr Range kUnit{};
inline constexpr Range kZeros{0, 0, 0};

/// A line of the list. `kernel` is what sluice_last_kernel() said after the call that wrote it.
struct Line {
  std::string backend, kernel, scene, tensor, checksum;
};

using Shape = std::vector<int64_t>;

class Scene {
 public:
  Scene(Device& device, std::string name);
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;
  ~Scene();

  /// An input.
  TensorView in(DType dtype, const Shape& shape, Range range = kUnit);
  TensorView integers(const std::vector<int64_t>& values, DType dtype = kInt32);
  TensorView flags(const std::vector<uint8_t>& values);
  /// An output, filled with bytes that no call leaves; written by the next call.
  TensorView out(const std::string& tensor, DType dtype, const Shape& shape);
  /// A tensor with contents that calls read and write.
  TensorView both(const std::string& tensor, DType dtype, const Shape& shape, Range range = kUnit);
  TensorView cursors(const std::string& tensor, const std::vector<int64_t>& values);

  /// Calls an operator with the workspace that it asks for.
  template <class Args, class Call>
  void run(int op, const Args& args, Call call) {
    const auto c = args.c();
    run_with(op, &c, [&](Workspace workspace) { return call(args, workspace, nullptr); });
  }

  /// The checksums of everything written, as lines for the list.
  std::vector<Line> finish(const std::string& backend);
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Memory {
    void* data = nullptr;
    size_t bytes = 0;
    std::string tensor, kernel;  ///< of outputs
  };

  void run_with(int op, const void* args, const std::function<Status(Workspace)>& call);
  TensorView view_of(const std::vector<std::byte>& bytes, DType dtype, const Shape& shape,
                     const std::string& tensor);
  TensorView index_view(const std::string& tensor, const std::vector<int64_t>& values, DType dtype);
  std::vector<std::byte> draw(DType dtype, const Shape& shape, Range range);

  Device& device_;
  std::string name_, refused_;
  uint64_t random_;
  std::vector<Memory> memory_;
};

/// Contiguous memory as a tensor of another shape.
TensorView shaped(const TensorView& view, const Shape& shape);
/// Entry i of a view's first dimension, e.g. one step of [steps,B,T,H,K].
TensorView entry(const TensorView& view, int64_t i);
/// [B,T,count,D] out of the rows of [B,T,width], `first` elements from their beginning.
TensorView heads(const TensorView& rows, int64_t first, int64_t count, int64_t D);
/// 0 = c_0, c_1, .. of sequences of these lengths.
std::vector<int64_t> offsets(const std::vector<int64_t>& lengths);
int64_t sum(const std::vector<int64_t>& values);
/// "bf16", "fp16", "fp32".
std::string word(DType dtype);
bool same(DType a, DType b);

/// Which cases a run has, and what becomes of each.
struct Run {
  Device& device;
  bool gpu;          ///< the device is one
  bool large;        ///< with long sequences and many rows, which a GPU spreads in other ways
  std::string pass;  ///< cases of one group alone, which the environment steers; "" for all
  std::string only;  ///< part of the names of the cases wanted
  std::function<void(Scene&)> done;

  /// Makes the scene `name` unless it is not wanted.
  void scene(const std::string& name, const std::function<void(Scene&)>& fill) const;
};

void chunk_forward_cases(const Run& run);
void linear_cases(const Run& run);
void recurrent_step_cases(const Run& run);
void ring_cases(const Run& run);
void layer_cases(const Run& run);
void small_operator_cases(const Run& run);
void stage_cases(const Run& run);
void chunk_backward_cases(const Run& run);

}  // namespace sluice::checksums

#endif  // SLUICE_TESTS_CHECKSUMS_SCENE_HPP_
