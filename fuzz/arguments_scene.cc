// Builds the views of a fuzzed call from bytes, damages them, and checks what the call may not have
// written.
// SPDX-License-Identifier: Apache-2.0
#include "arguments_scene.hpp"
#include "tables.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>

namespace sluice::fuzz {
namespace {

constexpr size_t kArenaBytes = 16 * 1024;
// Room before a view, for negative strides.
constexpr size_t kArenaFront = 2048;
// Calls on views of more elements than this only take time.
constexpr int64_t kMaxElements = 1 << 20;
// A struct_size beyond any struct; memory for it must exist.
constexpr size_t kMaxStruct = 8192;

constexpr sluice_dtype kF32{2, 32}, kF16{2, 16}, kBF16{4, 16};
constexpr sluice_dtype kI32{0, 32}, kI64{0, 64};

// First and last byte of a view relative to its data; false where that overflows.
bool extent(const sluice_tensor& view, int64_t* first, int64_t* last, int64_t* elements) {
  const int64_t size = std::max(view.dtype.bits / 8, 1);
  *first = 0;
  *last = size;
  *elements = 1;
  const int rank = std::min<int>(view.rank, SLUICE_MAX_RANK);
  for (int i = 0; i < rank; ++i) {
    int64_t reach = 0;
    if (view.shape[i] < 0) return false;
    if (__builtin_mul_overflow(*elements, view.shape[i], elements)) return false;
    if (view.shape[i] == 0) continue;
    if (__builtin_mul_overflow(view.shape[i] - 1, view.stride[i], &reach) ||
        __builtin_mul_overflow(reach, size, &reach) ||
        __builtin_add_overflow(reach < 0 ? *first : *last, reach, reach < 0 ? first : last)) {
      return false;
    }
  }
  return true;
}

// Calls body(byte offset of an element from data).
template <class Body>
void for_each_element(const sluice_tensor& view, int64_t elements, Body body) {
  std::array<int64_t, SLUICE_MAX_RANK> index{};
  for (int64_t n = 0; n < elements; ++n) {
    int64_t offset = 0;
    for (size_t i = 0; i < view.rank; ++i) offset += index[i] * view.stride[i];
    body(offset * (view.dtype.bits / 8));
    for (size_t i = view.rank; i-- > 0 && ++index[i] == view.shape[i];) index[i] = 0;
  }
}

}  // namespace

Scene::Scene(Bytes bytes) : bytes_(bytes) {
  op_ = static_cast<int>(bytes_.below(SLUICE_OP_COUNT));
  switch (op_) {
    case SLUICE_OP_CHUNK_FORWARD:
      build<sluice_chunk_forward_args>(kChunkForwardViews,
                                       [this](auto* args) { fill_chunk(args); });
      break;
    case SLUICE_OP_RECURRENT_STEP:
      build<sluice_recurrent_step_args>(kRecurrentStepViews,
                                        [this](auto* args) { fill_step(args); });
      break;
    case SLUICE_OP_CAUSAL_CONV1D:
      build<sluice_causal_conv1d_args>(kCausalConv1dViews, [this](auto* args) { fill_conv(args); });
      break;
    case SLUICE_OP_GATED_RMS_NORM:
      build<sluice_gated_rms_norm_args>(kGatedRmsNormViews,
                                        [this](auto* args) { fill_norm(args); });
      break;
    case SLUICE_OP_CHUNK_STAGE:
      build<sluice_chunk_stage_args>(kChunkStageViews, [this](auto* args) { fill_stage(args); });
      break;
    case SLUICE_OP_CHUNK_BACKWARD:
      build<sluice_chunk_backward_args>(kChunkBackwardViews,
                                        [this](auto* args) { fill_backward(args); });
      break;
    default:
      build<sluice_layer_args>(kLayerDecodeViews, [this](auto* args) { fill_layer(args); });
  }
}

template <class Args, class Fill>
void Scene::build(std::span<const ViewField> fields, Fill fill) {
  Args args{};
  args.struct_size = sizeof args;
  args.implementation = static_cast<int32_t>(bytes_.below(SLUICE_IMPL_CUDA));
  fill(&args);
  fields_.assign(fields.begin(), fields.end());
  args_.resize(sizeof args);
  std::memcpy(args_.data(), &args, sizeof args);
  damage(args_.data(), args_.size(), fields);
  std::memcpy(&args.struct_size, args_.data(), sizeof args.struct_size);
  size_ = std::clamp<size_t>(args.struct_size, sizeof args.struct_size, kMaxStruct);
  std::memcpy(args_.data(), &size_, sizeof size_);
  block_ = std::make_unique<std::byte[]>(size_);
  std::memcpy(block_.get(), args_.data(), std::min(size_, args_.size()));
  // What an older caller does not know counts as absent.
  if (size_ < args_.size())
    std::fill(args_.begin() + static_cast<ptrdiff_t>(size_), args_.end(), std::byte{0});
  for (auto& arena : arenas_) arena->before = arena->now;
}

void Scene::damage(std::byte* args, size_t size, std::span<const ViewField> fields) {
  constexpr int64_t kValues[] = {0,
                                 1,
                                 2,
                                 3,
                                 4,
                                 5,
                                 8,
                                 16,
                                 17,
                                 64,
                                 65,
                                 -1,
                                 -2,
                                 256,
                                 257,
                                 1 << 20,
                                 INT32_MAX,
                                 INT64_MAX,
                                 INT64_MIN,
                                 int64_t{1} << 62,
                                 (int64_t{1} << 32) + 1};
  for (int64_t count = bytes_.below(4); count > 0; --count) {
    if (bytes_.flag()) {  // a member of a view
      const ViewField& field =
          fields[static_cast<size_t>(bytes_.below(static_cast<int64_t>(fields.size())))];
      sluice_tensor view;
      std::memcpy(&view, args + field.offset, sizeof view);
      const int64_t value = kValues[bytes_.below(std::size(kValues))];
      const auto axis = static_cast<size_t>(bytes_.below(SLUICE_MAX_RANK));
      switch (bytes_.below(7)) {
        case 0:
          view.data = nullptr;
          break;
        case 1:
          view.shape[axis] = value;
          break;
        case 2:
          view.stride[axis] = value;
          break;
        case 3:
          view.rank = static_cast<uint16_t>(value);
          break;
        case 4:
          view.dtype = {static_cast<uint8_t>(bytes_.below(8)),
                        static_cast<uint8_t>(8 << bytes_.below(4))};
          break;
        case 5:
          view.device.type = static_cast<int32_t>(bytes_.below(4));
          break;
        default:
          std::swap(view.shape[axis], view.shape[0]);
          break;
      }
      std::memcpy(args + field.offset, &view, sizeof view);
      continue;
    }
    // Any four or eight bytes that belong to no view.
    const size_t width = bytes_.flag() ? 8 : 4;
    const size_t words = size / width;
    const size_t at = (static_cast<size_t>(bytes_.next()) << 8 | bytes_.next()) % words * width;
    const bool in_view = std::any_of(fields.begin(), fields.end(), [&](const ViewField& field) {
      return at + width > field.offset && at < field.offset + sizeof(sluice_tensor);
    });
    const int64_t value = kValues[bytes_.below(std::size(kValues))];
    if (!in_view) std::memcpy(args + at, &value, width);
  }
}

sluice_tensor Scene::tensor(sluice_dtype dtype, std::initializer_list<int64_t> shape) {
  auto arena = std::make_unique<Arena>();
  arena->now.resize(kArenaBytes);
  // Small floats of either sign in any dtype: no exponent byte near its end.
  uint32_t state = bytes_.next();
  for (size_t i = 0; i < kArenaBytes; i += sizeof state) {
    state = state * 1664525u + 1013904223u;
    const uint32_t word = (state ^ state >> 16) & 0xbfbfbfbfu;
    std::memcpy(arena->now.data() + i, &word, sizeof word);
  }
  sluice_tensor view{};
  view.data = arena->now.data() + kArenaFront;
  view.device = {SLUICE_DEVICE_CPU, 0};
  view.dtype = dtype;
  view.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape);
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    view.stride[i] = stride;
    stride *= view.shape[i];
  }
  arenas_.push_back(std::move(arena));
  return view;
}

sluice_tensor Scene::indices(std::initializer_list<int64_t> shape, int64_t values) {
  sluice_tensor view = tensor(bytes_.flag() ? kI64 : kI32, shape);
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  const size_t width = view.dtype.bits / 8u;
  std::vector<std::byte>& memory = arenas_.back()->now;
  std::fill(memory.begin(), memory.end(), std::byte{0});
  for (int64_t i = 0; i < std::min<int64_t>(count, 256); ++i) {
    const int64_t value = bytes_.below(values + 1) - 1;
    std::memcpy(memory.data() + kArenaFront + static_cast<size_t>(i) * width, &value, width);
  }
  return view;
}

// cu_seqlens: rising from 0, but for one entry in some inputs.
sluice_tensor Scene::offsets(int64_t sequences, int64_t tokens) {
  sluice_tensor view = indices({sequences + 1}, 1);
  const size_t width = view.dtype.bits / 8u;
  const int64_t wrong = bytes_.below(16);
  int64_t value = 0;
  for (int64_t i = 0; i <= sequences; ++i) {
    const int64_t stored = i == wrong ? bytes_.below(32) - 2 : value;
    std::memcpy(arenas_.back()->now.data() + kArenaFront + static_cast<size_t>(i) * width, &stored,
                width);
    value = std::min(tokens, value + bytes_.below(tokens + 1));
  }
  return view;
}

sluice_dtype Scene::float_type() {
  constexpr sluice_dtype kTypes[] = {kF32, kF32, kBF16, kF16};
  return kTypes[bytes_.below(4)];
}

sluice_tensor Scene::view_at(const ViewField& field) const {
  sluice_tensor view;
  std::memcpy(&view, args_.data() + field.offset, sizeof view);
  return view;
}

const Scene::Arena* Scene::arena_of(const void* data) const {
  for (const auto& arena : arenas_) {
    if (data == arena->now.data() + kArenaFront) return arena.get();
  }
  return nullptr;
}

bool Scene::safe_to_run() const {
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (view.data == nullptr) continue;
    int64_t first = 0, last = 0, elements = 0;
    const bool fits = view.rank <= SLUICE_MAX_RANK && extent(view, &first, &last, &elements) &&
                      elements <= kMaxElements && first >= -static_cast<int64_t>(kArenaFront) &&
                      last <= static_cast<int64_t>(kArenaBytes - kArenaFront);
    if (!fits) return false;
  }
  return true;
}

int Scene::run(sluice_workspace workspace) const {
  const void* args = block_.get();
  switch (op_) {
    case SLUICE_OP_CHUNK_FORWARD:
      return sluice_chunk_forward(static_cast<const sluice_chunk_forward_args*>(args), workspace,
                                  nullptr);
    case SLUICE_OP_RECURRENT_STEP:
      return sluice_recurrent_step(static_cast<const sluice_recurrent_step_args*>(args), workspace,
                                   nullptr);
    case SLUICE_OP_CAUSAL_CONV1D:
      return sluice_causal_conv1d(static_cast<const sluice_causal_conv1d_args*>(args), workspace,
                                  nullptr);
    case SLUICE_OP_GATED_RMS_NORM:
      return sluice_gated_rms_norm(static_cast<const sluice_gated_rms_norm_args*>(args), workspace,
                                   nullptr);
    case SLUICE_OP_LAYER_PREFILL:
      return sluice_layer_prefill(static_cast<const sluice_layer_args*>(args), workspace, nullptr);
    case SLUICE_OP_CHUNK_STAGE:
      return sluice_chunk_stage(static_cast<const sluice_chunk_stage_args*>(args), workspace,
                                nullptr);
    case SLUICE_OP_CHUNK_BACKWARD:
      return sluice_chunk_backward(static_cast<const sluice_chunk_backward_args*>(args), workspace,
                                   nullptr);
    default:
      return sluice_layer_decode(static_cast<const sluice_layer_args*>(args), workspace, nullptr);
  }
}

bool Scene::memory_kept(bool refused) const {
  std::vector<std::vector<uint8_t>> free(arenas_.size());  // bytes that may change
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (refused || !field.output || view.data == nullptr) continue;
    const Arena* arena = arena_of(view.data);
    int64_t first = 0, last = 0, elements = 0;
    if (arena == nullptr || !extent(view, &first, &last, &elements)) continue;
    const auto which =
        static_cast<size_t>(std::find_if(arenas_.begin(), arenas_.end(),
                                         [&](const auto& a) { return a.get() == arena; }) -
                            arenas_.begin());
    free[which].resize(kArenaBytes, 0);
    const auto width = static_cast<size_t>(view.dtype.bits / 8);
    for_each_element(view, elements, [&](int64_t offset) {
      const size_t at = static_cast<size_t>(static_cast<int64_t>(kArenaFront) + offset);
      for (size_t i = 0; i < width; ++i) free[which][at + i] = 1;
    });
  }
  for (size_t a = 0; a < arenas_.size(); ++a) {
    const Arena& arena = *arenas_[a];
    if (arena.now == arena.before) continue;
    if (free[a].empty()) return false;
    for (size_t i = 0; i < kArenaBytes; ++i) {
      if (free[a][i] == 0 && arena.now[i] != arena.before[i]) return false;
    }
  }
  return true;
}

}  // namespace sluice::fuzz
