// Damages nearly valid arguments: members of views, other words, and views that share memory.
// SPDX-License-Identifier: Apache-2.0
#include "arguments_scene.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sluice::fuzz {

void Scene::damage(std::byte* args, size_t size, std::span<const ViewField> fields) {
  constexpr int64_t kValues[] = {0, 1, 2, 3, 4, 5, 6, 8, 16, 17, 64, 65, -1, -2, 128};
  for (int64_t count = bytes_.below(4); count > 0; --count) {
    damaged_ = true;
    const int64_t what = bytes_.below(4);
    if (what == 0) {
      const ViewField& field =
          fields[static_cast<size_t>(bytes_.below(static_cast<int64_t>(fields.size())))];
      sluice_tensor view;
      std::memcpy(&view, args + field.offset, sizeof view);
      damage_view(&view);
      std::memcpy(args + field.offset, &view, sizeof view);
      continue;
    }
    if (what == 1) {
      share(args, fields);
      continue;
    }
    // Any four or eight bytes that belong to no view.
    const size_t width = bytes_.flag() ? 8 : 4;
    const size_t words = size / width;
    const size_t at = (static_cast<size_t>(bytes_.next()) << 8 | bytes_.next()) % words * width;
    const bool in_view = std::any_of(fields.begin(), fields.end(), [&](const ViewField& field) {
      return at + width > field.offset && at < field.offset + sizeof(sluice_tensor);
    });
    const int64_t value =
        bytes_.flag() ? draw_position() : kValues[bytes_.below(std::size(kValues))];
    if (!in_view) std::memcpy(args + at, &value, width);
  }
}

void Scene::damage_view(sluice_tensor* view) {
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
                                 -17,
                                 128,
                                 INT32_MAX,
                                 INT64_MAX,
                                 INT64_MIN,
                                 int64_t{1} << 62,
                                 (int64_t{1} << 32) + 1};
  const int64_t value = kValues[bytes_.below(std::size(kValues))];
  const auto axis = static_cast<size_t>(bytes_.below(SLUICE_MAX_RANK));
  switch (bytes_.below(8)) {
    case 0:
      view->data = nullptr;
      break;
    case 1:
      view->shape[axis] = value;
      break;
    case 2:
      view->stride[axis] = value;
      break;
    case 3:
      view->rank = static_cast<uint16_t>(value);
      break;
    case 4:
      view->dtype = {static_cast<uint8_t>(bytes_.below(8)),
                     static_cast<uint8_t>(8 << bytes_.below(4))};
      break;
    case 5:
      view->device.type = static_cast<int32_t>(bytes_.below(4));
      break;
    case 6:
      if (view->data != nullptr) view->data = static_cast<std::byte*>(view->data) + 1;
      break;
    default:
      std::swap(view->shape[axis], view->shape[0]);
      break;
  }
}

// Moves a view into the memory of another one, or beside it.
void Scene::share(std::byte* args, std::span<const ViewField> fields) {
  const auto count = static_cast<int64_t>(fields.size());
  std::byte* const to = args + fields[static_cast<size_t>(bytes_.below(count))].offset;
  const std::byte* const from = args + fields[static_cast<size_t>(bytes_.below(count))].offset;
  sluice_tensor view, other;
  std::memcpy(&view, to, sizeof view);
  std::memcpy(&other, from, sizeof other);
  const int64_t how = bytes_.below(8);
  Extent mine, its;
  if (view.data == nullptr || other.data == nullptr || !extent_of(view, &mine) ||
      !extent_of(other, &its)) {
    return;
  }
  const int64_t size = std::max(other.dtype.bits / 8, 1);
  int64_t distance = 0;
  if (how == 1) distance = its.last;                      // begins where the other one ends
  if (how == 2) distance = its.first - mine.last;         // ends where it begins
  if (how == 3) distance = its.last - size;               // begins at its last element
  if (how == 4) distance = its.first - mine.last + size;  // ends at its first one
  if (how == 5) distance = its.last / 2 / size * size;
  if (how == 6) distance = size;
  if (how == 7) view = other;
  const auto at = static_cast<int64_t>(memory_.position(other.data));
  if (at + distance < 0 || at + distance > static_cast<int64_t>(memory_.used())) return;
  view.data = static_cast<std::byte*>(other.data) + distance;
  std::memcpy(to, &view, sizeof view);
}

}  // namespace sluice::fuzz
