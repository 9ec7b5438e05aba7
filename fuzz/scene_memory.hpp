// Holds the memory of one fuzzed call: all views lie in one block, so that they may share bytes, and
// what no view holds can be closed to a sanitizer.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_FUZZ_SCENE_MEMORY_HPP_
#define SLUICE_FUZZ_SCENE_MEMORY_HPP_

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/sluice.h"

namespace sluice::fuzz {

/// Bytes from the first to the last element of a view, relative to its data.
struct Extent {
  int64_t first = 0, last = 0, elements = 1;
};

/// False where a size overflows or the rank is none.
bool extent_of(const sluice_tensor& view, Extent* extent) noexcept;

/// One block that every input uses again: nothing is allocated, and only what was taken is compared.
/// One object at a time.
class SceneMemory {
 public:
  SceneMemory() noexcept;
  ~SceneMemory() { open_all(); }
  SceneMemory(const SceneMemory&) = delete;
  SceneMemory& operator=(const SceneMemory&) = delete;

  /// Room for that many bytes, filled with small floats; a few bytes if there is not so much left.
  std::byte* take(int64_t bytes, uint8_t seed) noexcept;

  /// Whether all elements of a view lie in what was taken.
  bool holds(const sluice_tensor& view) const noexcept;

  /// Keeps the contents, for changed().
  void remember() noexcept;
  /// Whether a byte differs from what was remembered; `free[i]` says that byte i of what was taken may.
  bool changed(std::span<const uint8_t> free) const noexcept;
  bool changed_at(size_t i) const noexcept;

  /// With a sanitizer: no access is allowed, to any byte; again to a view's; again to all.
  void close() const noexcept;
  void open(const sluice_tensor& view) const noexcept;
  void open_all() const noexcept;

  size_t used() const noexcept { return used_; }
  /// Position of an address that lies in it.
  size_t position(const void* address) const noexcept;

 private:
  size_t used_ = 0;
};

/// Scratch of exactly that many bytes, ones at its front and old content behind: one byte more is an
/// access that a sanitizer sees. One object at a time.
class SceneWorkspace {
 public:
  static constexpr size_t kMost = size_t{4} << 20;
  explicit SceneWorkspace(size_t bytes) noexcept;
  ~SceneWorkspace();
  SceneWorkspace(const SceneWorkspace&) = delete;
  SceneWorkspace& operator=(const SceneWorkspace&) = delete;
  sluice_workspace get() const noexcept { return workspace_; }

 private:
  sluice_workspace workspace_{};
};

}  // namespace sluice::fuzz

#endif  // SLUICE_FUZZ_SCENE_MEMORY_HPP_
