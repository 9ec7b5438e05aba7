// Finds which views of a fuzzed call share memory, and what the call may not have written.
// SPDX-License-Identifier: Apache-2.0
#include "arguments_scene.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace sluice::fuzz {
namespace {

// Calls on views of more elements than this only take time.
constexpr int64_t kMaxElements = 1 << 15;
// Calls body(byte offset of an element from data).
template <class Body>
void for_each_element(const sluice_tensor& view, Body body) {
  int64_t elements = 1;
  for (size_t i = 0; i < view.rank; ++i) elements *= view.shape[i];
  std::array<int64_t, SLUICE_MAX_RANK> index{};
  for (int64_t n = 0; n < elements; ++n) {
    int64_t offset = 0;
    for (size_t i = 0; i < view.rank; ++i) offset += index[i] * view.stride[i];
    body(offset * (view.dtype.bits / 8));
    for (size_t i = view.rank; i-- > 0 && ++index[i] == view.shape[i];) index[i] = 0;
  }
}

// Calls body(position of a byte of an element in the memory).
template <class Body>
void for_each_byte(const SceneMemory& memory, const sluice_tensor& view, Body body) {
  const auto data = static_cast<int64_t>(memory.position(view.data));
  const auto width = static_cast<size_t>(view.dtype.bits / 8);
  for_each_element(view, [&](int64_t offset) {
    for (size_t i = 0; i < width; ++i) body(static_cast<size_t>(data + offset) + i);
  });
}

bool ranges_meet(const sluice_tensor& a, const sluice_tensor& b) {
  Extent x, y;
  if (!extent_of(a, &x) || !extent_of(b, &y)) return true;
  if (x.elements == 0 || y.elements == 0) return a.data == b.data;
  const int64_t distance =
      static_cast<const std::byte*>(b.data) - static_cast<const std::byte*>(a.data);
  return x.first < distance + y.last && distance + y.first < x.last;
}

// Elements of equal indices lie in the same bytes.
bool same_view(const sluice_tensor& a, const sluice_tensor& b) {
  if (a.data != b.data || std::memcmp(&a.dtype, &b.dtype, sizeof a.dtype) != 0) return false;
  if (a.rank != b.rank || a.rank > SLUICE_MAX_RANK) return false;
  for (size_t i = 0; i < a.rank; ++i) {
    if (a.shape[i] > 1 && b.shape[i] > 1 && a.stride[i] != b.stride[i]) return false;
  }
  return true;
}

}  // namespace

// Whether two views may be one and the same: pools of one kind, and the rows of a norm.
bool Scene::in_place(const ViewField& a, const ViewField& b) const {
  const auto states = [](const ViewField& field, auto... offsets) {
    return ((field.offset == offsets) || ...);
  };
  const auto both = [&](auto... offsets) { return states(a, offsets...) && states(b, offsets...); };
  switch (op_) {
    case SLUICE_OP_CHUNK_FORWARD:
      return both(offsetof(sluice_chunk_forward_args, state.initial),
                  offsetof(sluice_chunk_forward_args, state.final),
                  offsetof(sluice_chunk_forward_args, checkpoints));
    case SLUICE_OP_RECURRENT_STEP:
      return both(offsetof(sluice_recurrent_step_args, state.initial),
                  offsetof(sluice_recurrent_step_args, state.final));
    case SLUICE_OP_CAUSAL_CONV1D:
      return both(offsetof(sluice_causal_conv1d_args, state.initial),
                  offsetof(sluice_causal_conv1d_args, state.final));
    case SLUICE_OP_GATED_RMS_NORM:
      return both(offsetof(sluice_gated_rms_norm_args, x),
                  offsetof(sluice_gated_rms_norm_args, out));
    case SLUICE_OP_CHUNK_STAGE:
      return both(offsetof(sluice_chunk_stage_args, state.initial),
                  offsetof(sluice_chunk_stage_args, state.final));
    case SLUICE_OP_LAYER_PREFILL:
    case SLUICE_OP_LAYER_DECODE:
      return both(offsetof(sluice_layer_args, state.initial),
                  offsetof(sluice_layer_args, state.final)) ||
             both(offsetof(sluice_layer_args, conv_initial),
                  offsetof(sluice_layer_args, conv_final)) ||
             both(offsetof(sluice_layer_args, k_conv_initial),
                  offsetof(sluice_layer_args, k_conv_final)) ||
             both(offsetof(sluice_layer_args, v_conv_initial),
                  offsetof(sluice_layer_args, v_conv_final));
    default:
      return false;
  }
}

bool Scene::safe_to_run() const {
  // Of huge shapes those that only pretend; nobody waits for products of such dimensions.
  const int64_t most = layout_ == Layout::kHuge ? 256 : kMaxElements;
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (view.data == nullptr) continue;
    if (!memory_.holds(view)) return false;
    int64_t elements = 1;
    for (size_t i = 0; i < view.rank; ++i) {
      if (__builtin_mul_overflow(elements, std::max<int64_t>(view.shape[i], 1), &elements)) {
        return false;
      }
    }
    if (elements > most) return false;
  }
  return true;
}

void Scene::describe() const {
  std::fprintf(stderr, "operator %d\n", op_);
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (view.data == nullptr) continue;
    std::fprintf(stderr, "  view at %zu of the struct, %s: byte %zu, {%d, %d bits}", field.offset,
                 field.output ? "out" : "in", memory_.position(view.data), view.dtype.code,
                 view.dtype.bits);
    for (size_t i = 0; i < std::min<size_t>(view.rank, SLUICE_MAX_RANK); ++i) {
      std::fprintf(stderr, " %lld:%lld", static_cast<long long>(view.shape[i]),
                   static_cast<long long>(view.stride[i]));
    }
    std::fprintf(stderr, "\n");
  }
}

Sharing Scene::sharing() const {
  // Slices of one row that do not reach into one another: what a fused projection makes.
  if (layout_ == Layout::kFused && !damaged_) return Sharing::kNothing;
  for (const ViewField& a : fields_) {
    const sluice_tensor view = view_at(a);
    if (!a.output || view.data == nullptr) continue;
    for (const ViewField& b : fields_) {
      const sluice_tensor other = view_at(b);
      if (a.offset == b.offset || other.data == nullptr || !ranges_meet(view, other)) continue;
      if (!in_place(a, b) || !same_view(view, other)) return Sharing::kPerhaps;
    }
  }
  return Sharing::kNothing;
}

// For each byte of the memory, how many outputs have it in an element. Views that are one count once.
std::vector<uint8_t> Scene::elements_of_outputs() const {
  std::vector<uint8_t> outputs(memory_.used(), 0);
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (!field.output || view.data == nullptr) continue;
    const bool repeated = std::any_of(fields_.begin(), fields_.end(), [&](const ViewField& other) {
      return other.output && other.offset < field.offset && in_place(other, field) &&
             same_view(view_at(other), view);
    });
    if (!repeated) for_each_byte(memory_, view, [&](size_t i) { ++outputs[i]; });
  }
  return outputs;
}

bool Scene::only_outputs_changed() const { return !memory_.changed(elements_of_outputs()); }

bool Scene::shared_changed() const {
  if (sharing() == Sharing::kNothing) return false;
  const std::vector<uint8_t> outputs = elements_of_outputs();
  bool changed = false;
  for (size_t i = 0; i < outputs.size(); ++i) changed |= outputs[i] > 1 && memory_.changed_at(i);
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (field.output || view.data == nullptr) continue;
    const bool updated = std::any_of(fields_.begin(), fields_.end(), [&](const ViewField& other) {
      return other.output && in_place(other, field) && same_view(view_at(other), view);
    });
    if (updated) continue;
    for_each_byte(memory_, view, [&](size_t i) { changed |= memory_.changed_at(i); });
  }
  return changed;
}

}  // namespace sluice::fuzz
