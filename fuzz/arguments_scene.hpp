// Makes one call of an operator with arguments from arbitrary bytes: nearly valid, then damaged.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_FUZZ_ARGUMENTS_SCENE_HPP_
#define SLUICE_FUZZ_ARGUMENTS_SCENE_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sluice/sluice.h"

namespace sluice::fuzz {

/// Takes bytes from the front of the input; zeros once it is used up.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t next() { return position_ < size_ ? data_[position_++] : uint8_t{0}; }
  /// 0 .. count-1.
  int64_t below(int64_t count) { return next() % count; }
  bool flag() { return (next() & 1) != 0; }
  bool empty() const { return position_ >= size_; }

 private:
  const uint8_t* data_;
  size_t size_, position_ = 0;
};

/// Where a view lies in an args struct, and whether the operator may write it.
struct ViewField {
  size_t offset;
  bool output;
};

/// The args struct of one operator and the memory that its views point into.
class Scene {
 public:
  explicit Scene(Bytes bytes);

  int op() const { return op_; }
  /// The struct in a heap block of exactly struct_size bytes.
  const void* args() const { return block_.get(); }
  /// Whether every view that is present lies inside its memory, so that the call may be made.
  bool safe_to_run() const;
  int run(sluice_workspace workspace) const;
  /// Whether only elements of output views have changed; with `refused`, nothing at all.
  bool memory_kept(bool refused) const;

 private:
  struct Arena {
    std::vector<std::byte> now, before;
  };

  template <class Args, class Fill>
  void build(std::span<const ViewField> fields, Fill fill);
  void fill_chunk(sluice_chunk_forward_args* args);
  void fill_step(sluice_recurrent_step_args* args);
  void fill_stage(sluice_chunk_stage_args* args);
  void fill_backward(sluice_chunk_backward_args* args);
  void fill_conv(sluice_causal_conv1d_args* args);
  void fill_norm(sluice_gated_rms_norm_args* args);
  void fill_layer(sluice_layer_args* args);
  template <class Args>
  void fill_delta_rule(Args* args);
  template <class Slots>
  void fill_slots(Slots* state, int64_t N, int64_t slots);
  void fill_choices(sluice_delta_options* options);
  sluice_tensor tensor(sluice_dtype dtype, std::initializer_list<int64_t> shape);
  sluice_tensor indices(std::initializer_list<int64_t> shape, int64_t values);
  sluice_tensor offsets(int64_t sequences, int64_t tokens);
  sluice_dtype float_type();
  void damage(std::byte* args, size_t size, std::span<const ViewField> fields);
  sluice_tensor view_at(const ViewField& field) const;
  const Arena* arena_of(const void* data) const;

  Bytes bytes_;
  int op_ = 0;
  size_t size_ = 0;
  std::vector<ViewField> fields_;
  std::vector<std::byte> args_;  // whole struct, zero-padded, for reading views back
  std::unique_ptr<std::byte[]> block_;
  std::vector<std::unique_ptr<Arena>> arenas_;
};

}  // namespace sluice::fuzz

#endif  // SLUICE_FUZZ_ARGUMENTS_SCENE_HPP_
