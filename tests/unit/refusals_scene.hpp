// Defines what refusal tests share: memory whose every byte is watched, the table row, and the
// call.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_UNIT_REFUSALS_SCENE_HPP_
#define SLUICE_TESTS_UNIT_REFUSALS_SCENE_HPP_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/operators.hpp"
#include "sluice/sluice.h"

namespace sluice::check {

inline constexpr sluice_dtype kFloat32{2, 32}, kFloat16{2, 16}, kBFloat16{4, 16};
inline constexpr sluice_dtype kInt32{0, 32}, kInt64{0, 64}, kBool{6, 8}, kFloat64{2, 64};

/// One block of memory for all tensors of a call. Content everywhere: bytes 0x3f, which is 0.747 as
/// float32 and bfloat16, so that it holds usable inputs and recognisable outputs.
class Memory {
 public:
  static constexpr size_t kBytes = 1 << 16, kAlignment = 256;

  Memory() : block_(kBytes + kAlignment) {
    const auto misfit = reinterpret_cast<uintptr_t>(block_.data()) % kAlignment;
    base_ = block_.data() + (misfit == 0 ? 0 : kAlignment - misfit);
    std::memset(block_.data(), 0x3f, block_.size());
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Fresh 256-byte aligned bytes.
  void* take(size_t bytes) {
    void* start = base_ + used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    EXPECT_LE(used_, kBytes) << "the scene's memory is too small";
    return start;
  }

  /// A dense CPU view of fresh memory.
  sluice_tensor tensor(sluice_dtype dtype, std::initializer_list<int64_t> shape) {
    sluice_tensor t{};
    t.device = {SLUICE_DEVICE_CPU, 0};
    t.dtype = dtype;
    t.rank = static_cast<uint16_t>(shape.size());
    int axis = 0;
    for (const int64_t size : shape) t.shape[axis++] = size;
    int64_t count = 1;
    while (axis-- > 0) {
      t.stride[axis] = count;
      count *= t.shape[axis];
    }
    t.data = take(static_cast<size_t>(count) * dtype.bits / 8);
    return t;
  }

  /// A rank 1 view of these integers.
  sluice_tensor indices(std::initializer_list<int64_t> values, sluice_dtype dtype = kInt32) {
    sluice_tensor t = tensor(dtype, {static_cast<int64_t>(values.size())});
    auto* out = static_cast<std::byte*>(t.data);
    for (const int64_t value : values) {
      const int32_t narrow = static_cast<int32_t>(value);
      std::memcpy(out, dtype.bits == 64 ? static_cast<const void*>(&value) : &narrow,
                  dtype.bits / 8u);
      out += dtype.bits / 8u;
    }
    return t;
  }

  /// A rank 2 view [rows, columns] of these integers.
  sluice_tensor table(int64_t rows, int64_t columns, std::initializer_list<int64_t> values) {
    sluice_tensor t = indices(values);
    t.rank = 2;
    t.shape[0] = rows, t.shape[1] = columns;
    t.stride[0] = columns, t.stride[1] = 1;
    return t;
  }

  std::vector<std::byte> snapshot() const { return block_; }

 private:
  std::vector<std::byte> block_;
  std::byte* base_ = nullptr;
  size_t used_ = 0;
};

/// A valid call of one operator, on watched memory. Cases spoil one thing each.
template <class Args>
struct Scene {
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  Args args{};
  sluice_workspace workspace{};
  void* stream = nullptr;
};

/// When a rule can be checked: sluice_supported() and sluice_workspace_size() see sizes only.
enum class Seen { kBySizes, kByCall };

/// One row: what is spoilt, and the refusal expected.
template <class Args>
struct Refusal {
  const char* name;
  std::function<void(Scene<Args>&)> spoil;
  const char* message;
  Seen seen = Seen::kBySizes;
  int code = SLUICE_INVALID_ARGUMENT;
};

template <class Args>
void PrintTo(const Refusal<Args>& row, std::ostream* out) {
  *out << row.name;
}

template <class Args>
std::string row_name(const ::testing::TestParamInfo<Refusal<Args>>& info) {
  return info.param.name;
}

/// The call that belongs to an operator.
inline int call(sluice_op op, const void* args, sluice_workspace workspace, void* stream) {
  switch (op) {
#define SLUICE_CALL(name, op, args_type) \
  case op:                               \
    return sluice_##name(static_cast<const args_type*>(args), workspace, stream);
    SLUICE_OPERATORS(SLUICE_CALL)
#undef SLUICE_CALL
    default:
      return SLUICE_INTERNAL;
  }
}

/// The call is refused with this code and message, both queries agree where they can, and no byte
/// of the scene has changed.
template <class Args>
void expect_refused(sluice_op op, const Refusal<Args>& row, Scene<Args> scene) {
  row.spoil(scene);
  const std::vector<std::byte> before = scene.memory->snapshot();
  EXPECT_EQ(call(op, &scene.args, scene.workspace, scene.stream), row.code);
  EXPECT_STREQ(sluice_last_error(), row.message);
  if (row.seen == Seen::kBySizes) {
    char kernel[8] = "before";
    EXPECT_EQ(sluice_supported(op, &scene.args, kernel, sizeof kernel), row.code);
    EXPECT_STREQ(sluice_last_error(), row.message);
    EXPECT_STREQ(kernel, "before");
    size_t bytes = 4711;
    EXPECT_EQ(sluice_workspace_size(op, &scene.args, &bytes), row.code);
    EXPECT_STREQ(sluice_last_error(), row.message);
    EXPECT_EQ(bytes, 4711u);
  } else {
    EXPECT_EQ(sluice_supported(op, &scene.args, nullptr, 0), SLUICE_OK) << sluice_last_error();
  }
  EXPECT_TRUE(scene.memory->snapshot() == before) << "memory was written";
}

/// The call succeeds and leaves no error behind.
template <class Args>
void expect_accepted(sluice_op op, Scene<Args> scene) {
  EXPECT_EQ(sluice_supported(op, &scene.args, nullptr, 0), SLUICE_OK) << sluice_last_error();
  EXPECT_EQ(call(op, &scene.args, scene.workspace, scene.stream), SLUICE_OK) << sluice_last_error();
  EXPECT_STREQ(sluice_last_error(), "");
}

}  // namespace sluice::check

#endif  // SLUICE_TESTS_UNIT_REFUSALS_SCENE_HPP_
