// Makes the views of a fuzzed call: apart, as slices of one row, or of shapes that no memory holds.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <iterator>

#include "arguments_scene.hpp"

namespace sluice::fuzz {
namespace {

constexpr sluice_dtype kF32{2, 32}, kF16{2, 16}, kBF16{4, 16};
constexpr sluice_dtype kI32{0, 32}, kI64{0, 64};

int64_t elements_of(const sluice_tensor& view) {
  int64_t elements = 1;
  for (size_t i = 0; i < view.rank; ++i) elements *= view.shape[i];
  return elements;
}

// Strides of a dense view; what overflows wraps, as it may for a caller.
void make_dense(sluice_tensor* view) {
  uint64_t stride = 1;
  for (size_t i = view->rank; i-- > 0;) {
    view->stride[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(view->shape[i]);
  }
}

}  // namespace

sluice_dtype Scene::float_type() {
  constexpr sluice_dtype kTypes[] = {kF32, kF32, kBF16, kF16};
  return kTypes[bytes_.below(4)];
}

Sizes Scene::draw_sizes(int64_t most_tokens) {
  constexpr int64_t kDims[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17};
  Sizes s{};
  s.B = bytes_.below(3);
  const uint8_t tokens = bytes_.next();
  // Few tokens; sometimes more than a chunk of them.
  s.T = tokens < 240 ? tokens % (most_tokens + 1) : 60 + tokens % 16;
  s.H = 1 + bytes_.below(2);
  int64_t r = 1 + bytes_.below(3);
  s.K = kDims[bytes_.below(std::size(kDims))];
  s.V = kDims[bytes_.below(std::size(kDims))];
  if (layout_ == Layout::kHuge) {
    constexpr int64_t kHuge[] = {1 << 16,   (1 << 20) + 1,    1 << 28,          INT32_MAX,
                                 1LL << 31, (1LL << 33) + 64, int64_t{1} << 40, int64_t{1} << 47};
    int64_t* const sizes[] = {&s.B, &s.T, &s.H, &r, &s.K, &s.V};
    for (int64_t count = 1 + bytes_.below(3); count > 0; --count) {
      int64_t* const size = sizes[bytes_.below(std::size(sizes))];
      const bool half = size == &s.T ? halved_ != Halved::kNone : halved_ == Halved::kAll;
      *size = kHuge[bytes_.below(std::size(kHuge))] >> (half ? 1 : 0);
    }
  }
  if (__builtin_mul_overflow(s.H, r, &s.HV)) s.HV = s.H;
  s.N = s.B;
  return s;
}

sluice_tensor Scene::draw_rows(Sizes* s) {
  sluice_tensor cu_seqlens{};
  if (bytes_.flag()) {
    s->B = 1;
    s->N = bytes_.below(4);
    if (layout_ == Layout::kHuge && bytes_.flag()) {
      s->N = (int64_t{1} << (16 + bytes_.below(40))) >> (halved_ == Halved::kAll ? 1 : 0);
    }
    cu_seqlens = offsets(s->N, s->T);
  }
  if (layout_ == Layout::kFused) {
    pitch_ = 256 * (1 + bytes_.below(4));
    fused_rows_ = s->B * s->T;
    fused_ = memory_.take((fused_rows_ + 1) * pitch_, bytes_.next());
  }
  return cu_seqlens;
}

int64_t Scene::draw_position() {
  constexpr int64_t kPositions[] = {0,         1,         7,         50,        100, INT32_MAX,
                                    INT64_MAX, INT64_MIN, 1LL << 31, 1LL << 32, -1,  INT64_MAX - 8};
  return kPositions[bytes_.below(std::size(kPositions))];
}

sluice_tensor Scene::tensor(sluice_dtype dtype, std::initializer_list<int64_t> shape) {
  sluice_tensor view{};
  view.device = {SLUICE_DEVICE_CPU, 0};
  view.dtype = dtype;
  view.rank = static_cast<uint16_t>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape);
  if (layout_ == Layout::kHuge) {
    lay_out_huge(&view);
  } else if (layout_ != Layout::kFused || !lay_out_fused(&view)) {
    make_dense(&view);
    view.data = memory_.take(elements_of(view) * dtype.bits / 8, bytes_.next());
  }
  return view;
}

// Dense, or one row again and again.
void Scene::lay_out_huge(sluice_tensor* view) {
  make_dense(view);
  if (bytes_.flag()) {
    for (size_t i = 0; i < view->rank; ++i) {
      if (view->stride[i] != 1 || view->rank == 1) view->stride[i] = 0;
    }
  }
  Extent extent;
  const bool known = extent_of(*view, &extent);
  view->data = memory_.take(known ? std::min<int64_t>(extent.last, 4096) : 64, 0);
}

// The next columns of the shared rows; back to the front where they end, over what is there.
bool Scene::lay_out_fused(sluice_tensor* view) {
  if (view->rank < 3 || view->shape[0] * view->shape[1] != fused_rows_ || fused_rows_ == 0) {
    return false;
  }
  const int64_t size = view->dtype.bits / 8;
  int64_t width = size;
  for (size_t i = 2; i < view->rank; ++i) width *= view->shape[i];
  column_ = (column_ + size - 1) / size * size;
  if (width > pitch_) return false;
  if (column_ + width > pitch_) {
    damaged_ = true;
    column_ = 0;
  }
  make_dense(view);
  view->stride[1] = pitch_ / size;
  view->stride[0] = view->stride[1] * view->shape[1];
  view->data = fused_ + column_;
  column_ += width;
  return true;
}

void Scene::set_index(const sluice_tensor& view, int64_t i, int64_t value) {
  const auto width = static_cast<size_t>(view.dtype.bits / 8);
  if (!memory_.holds(view)) return;
  std::memcpy(static_cast<std::byte*>(view.data) +
                  static_cast<size_t>(i * view.stride[view.rank - 1]) * width,
              &value, width);
}

sluice_tensor Scene::indices(std::initializer_list<int64_t> shape, int64_t values) {
  const Layout layout = layout_;
  if (layout_ == Layout::kFused) layout_ = Layout::kApart;
  const sluice_tensor view = tensor(bytes_.flag() ? kI64 : kI32, shape);
  layout_ = layout;
  const int64_t count = layout_ == Layout::kHuge ? 1 : std::min<int64_t>(elements_of(view), 256);
  for (int64_t i = 0; i < count; ++i) set_index(view, i, bytes_.below(values + 1) - 1);
  return view;
}

// cu_seqlens: rising from 0, but for one entry in some inputs.
sluice_tensor Scene::offsets(int64_t sequences, int64_t tokens) {
  const sluice_tensor view = indices({sequences + 1}, 1);
  if (layout_ == Layout::kHuge) return view;
  const int64_t wrong = bytes_.below(16);
  int64_t value = 0;
  for (int64_t i = 0; i <= sequences; ++i) {
    set_index(view, i, i == wrong ? bytes_.below(32) - 2 : value);
    value = std::min(tokens, value + bytes_.below(tokens + 1));
  }
  return view;
}

}  // namespace sluice::fuzz
