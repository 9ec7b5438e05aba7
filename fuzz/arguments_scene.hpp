// Makes one call of an operator with arguments from arbitrary bytes: nearly valid, then damaged.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_FUZZ_ARGUMENTS_SCENE_HPP_
#define SLUICE_FUZZ_ARGUMENTS_SCENE_HPP_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "scene_memory.hpp"
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
  bool one_in(int64_t count) { return below(count) == count - 1; }

 private:
  const uint8_t* data_;
  size_t size_, position_ = 0;
};

/// Where a view lies in an args struct, and whether the operator may write it.
struct ViewField {
  size_t offset;
  bool output;
};

/// Sizes of a delta rule call.
struct Sizes {
  int64_t B, T, H, HV, K, V, N;
};

/// How the views of a scene lie in memory.
enum class Layout {
  kApart,  ///< each on its own, dense
  kFused,  ///< token tensors are slices of one row, as of a fused projection; some overlap
  kHuge,   ///< shapes that no memory holds, each with the others in agreement; strides may be 0
};

/// What the views of a call share.
enum class Sharing {
  kNothing,  ///< what is written meets no other view, but for pools that are updated in place
  kPerhaps,  ///< address ranges meet
};

/// Which of the dimensions that are huge (Layout::kHuge) are half as large.
enum class Halved { kNone, kTokens, kAll };

/// The args struct of one operator and the memory that its views point into.
class Scene {
 public:
  explicit Scene(Bytes bytes, Halved halved = Halved::kNone);

  int op() const { return op_; }
  Layout layout() const { return layout_; }
  /// The struct in a heap block of exactly struct_size bytes.
  const void* args() const { return block_.get(); }
  /// Whether every view that is present lies inside the memory, so that the call may be made.
  bool safe_to_run() const;
  Sharing sharing() const;
  /// The call; meanwhile nothing but the views may be touched.
  int run(sluice_workspace workspace) const;
  const SceneMemory& memory() const { return memory_; }
  /// Whether the call has changed nothing but elements of output views.
  bool only_outputs_changed() const;
  /// Whether it has changed an element of an input, or one of two outputs at once.
  bool shared_changed() const;
  /// Prints the views, for who has to understand a finding.
  void describe() const;

 private:
  template <class Args, class Fill>
  void build(std::span<const ViewField> fields, Fill fill);
  void fill_chunk(sluice_chunk_forward_args* args);
  void fill_step(sluice_recurrent_step_args* args);
  void fill_stage(sluice_chunk_stage_args* args);
  void fill_backward(sluice_chunk_backward_args* args);
  void fill_summary(sluice_chunk_summary_args* args);
  void fill_fold(sluice_state_fold_args* args);
  void fill_conv(sluice_causal_conv1d_args* args);
  void fill_norm(sluice_gated_rms_norm_args* args);
  void fill_conv_backward(sluice_causal_conv1d_backward_args* args);
  void fill_norm_backward(sluice_gated_rms_norm_backward_args* args);
  void fill_layer_backward(sluice_layer_backward_args* args);
  void fill_layer(sluice_layer_args* args);
  void fill_layer_convs(const Sizes& s, sluice_dtype io, int64_t W, sluice_layer_args* args);
  void fill_layer_states(const Sizes& s, int64_t L, sluice_layer_args* args);
  template <class Args>
  Sizes fill_delta_rule(Args* args);
  template <class Args>
  void fill_gates(const Sizes& s, Args* args);
  template <class Slots>
  void fill_slots(Slots* state, int64_t N, int64_t slots);
  void fill_choices(sluice_delta_options* options);
  template <class Args>
  void fill_split(Args* args);
  void fill_ring(const Sizes& s, int64_t slots, int64_t tokens, sluice_replay_ring* ring);
  Sizes draw_sizes(int64_t most_tokens);
  /// Makes a batch packed, or not; its cu_seqlens.
  sluice_tensor draw_rows(Sizes* s);
  int64_t draw_position();
  sluice_tensor tensor(sluice_dtype dtype, std::initializer_list<int64_t> shape);
  void lay_out_huge(sluice_tensor* view);
  bool lay_out_fused(sluice_tensor* view);
  sluice_tensor indices(std::initializer_list<int64_t> shape, int64_t values);
  void set_index(const sluice_tensor& view, int64_t i, int64_t value);
  sluice_tensor offsets(int64_t sequences, int64_t tokens);
  sluice_dtype float_type();
  void damage(std::byte* args, size_t size, std::span<const ViewField> fields);
  void damage_view(sluice_tensor* view);
  void share(std::byte* args, std::span<const ViewField> fields);
  sluice_tensor view_at(const ViewField& field) const;
  bool in_place(const ViewField& a, const ViewField& b) const;
  std::vector<uint8_t> elements_of_outputs() const;

  Bytes bytes_;
  Halved halved_;
  int op_ = 0;
  Layout layout_ = Layout::kApart;
  bool damaged_ = false;
  size_t size_ = 0;
  std::vector<ViewField> fields_;
  std::vector<std::byte> args_;  // whole struct, zero-padded, for reading views back
  std::unique_ptr<std::byte[]> block_;
  SceneMemory memory_;
  // Of Layout::kFused: the buffer, bytes of a row, what is taken of it, rows.
  std::byte* fused_ = nullptr;
  int64_t pitch_ = 0, column_ = 0, fused_rows_ = 0;
};

/// Slots for N sequences of a pool, each view there or not.
template <class Slots>
void Scene::fill_slots(Slots* state, int64_t N, int64_t slots) {
  if (bytes_.flag()) state->read_slots = indices({N}, slots + 1);
  if (bytes_.flag()) state->write_slots = indices({N}, slots + 1);
  if (bytes_.flag()) {
    state->has_initial_state = indices({N}, 2);
    state->has_initial_state.dtype = {1, 8};
  }
  state->pad_below = bytes_.below(2);
}

}  // namespace sluice::fuzz

#endif  // SLUICE_FUZZ_ARGUMENTS_SCENE_HPP_
