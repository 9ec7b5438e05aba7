// Keeps the block of memory that views of fuzzed calls lie in, and closes to AddressSanitizer what
// they do not hold.
// SPDX-License-Identifier: Apache-2.0
#include "scene_memory.hpp"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sluice::fuzz {
namespace {

constexpr size_t kBytes = 256 * 1024;
/// Before the first view, between two and behind the last: for strides and offsets that lead out.
constexpr size_t kGap = 512;
constexpr size_t kAlignment = 64;

alignas(kAlignment) std::byte now[kBytes];
std::byte before[kBytes];

/// Small floats of either sign in any dtype: no exponent byte near its end.
const std::byte* pattern() noexcept {
  constexpr size_t kPattern = kBytes + 256 * kAlignment;
  static const auto* const bytes = [] {
    static std::array<std::byte, kPattern> filled;
    uint32_t state = 1;
    for (size_t i = 0; i < filled.size(); i += sizeof state) {
      state = state * 1664525u + 1013904223u;
      const uint32_t word = (state ^ state >> 16) & 0xbfbfbfbfu;
      std::memcpy(filled.data() + i, &word, sizeof word);
    }
    return filled.data();
  }();
  return bytes;
}

}  // namespace

bool extent_of(const sluice_tensor& view, Extent* extent) noexcept {
  const int64_t size = std::max(view.dtype.bits / 8, 1);
  *extent = {0, size, 1};
  if (view.rank > SLUICE_MAX_RANK) return false;
  for (size_t i = 0; i < view.rank; ++i) {
    int64_t reach = 0;
    if (view.shape[i] < 0) return false;
    if (__builtin_mul_overflow(extent->elements, view.shape[i], &extent->elements)) return false;
    if (view.shape[i] == 0) continue;
    int64_t* const end = view.stride[i] < 0 ? &extent->first : &extent->last;
    if (__builtin_mul_overflow(view.shape[i] - 1, view.stride[i], &reach) ||
        __builtin_mul_overflow(reach, size, &reach) || __builtin_add_overflow(*end, reach, end)) {
      return false;
    }
  }
  return true;
}

SceneMemory::SceneMemory() noexcept : used_(kGap) { std::memcpy(now, pattern(), kGap); }

std::byte* SceneMemory::take(int64_t bytes, uint8_t seed) noexcept {
  const auto left = static_cast<int64_t>(kBytes - used_) - 4 * static_cast<int64_t>(kGap);
  if (left < 0) return now + kGap;
  if (bytes > left) bytes = std::min<int64_t>(kAlignment, left);
  const size_t room =
      (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment + kGap;
  std::byte* const data = now + used_;
  std::memcpy(data, pattern() + seed * kAlignment, room);
  used_ += room;
  return data;
}

bool SceneMemory::holds(const sluice_tensor& view) const noexcept {
  Extent extent;
  if (!extent_of(view, &extent)) return false;
  const auto at = static_cast<int64_t>(static_cast<const std::byte*>(view.data) - now);
  return at >= 0 && at <= static_cast<int64_t>(used_) && extent.first >= -at &&
         extent.last <= static_cast<int64_t>(used_) - at;
}

void SceneMemory::remember() noexcept { std::memcpy(before, now, used_); }

bool SceneMemory::changed(std::span<const uint8_t> free) const noexcept {
  if (std::memcmp(now, before, used_) == 0) return false;
  for (size_t i = 0; i < used_; ++i) {
    if (changed_at(i) && (free.empty() || free[i] == 0)) return true;
  }
  return false;
}

bool SceneMemory::changed_at(size_t i) const noexcept { return now[i] != before[i]; }

void SceneMemory::close() const noexcept { ASAN_POISON_MEMORY_REGION(now, used_); }

void SceneMemory::open(const sluice_tensor& view) const noexcept {
  Extent extent;
  if (!extent_of(view, &extent) || extent.elements == 0) return;
  const auto* const data = static_cast<const std::byte*>(view.data);
  ASAN_UNPOISON_MEMORY_REGION(data + extent.first, static_cast<size_t>(extent.last - extent.first));
}

void SceneMemory::open_all() const noexcept { ASAN_UNPOISON_MEMORY_REGION(now, used_); }

size_t SceneMemory::position(const void* address) const noexcept {
  return static_cast<size_t>(static_cast<const std::byte*>(address) - now);
}

namespace {

constexpr size_t kGuard = 4096;
// Filling all of it would be half of the time.
constexpr size_t kFilled = size_t{64} << 10;
alignas(4096) std::byte scratch[kGuard + SceneWorkspace::kMost + kGuard];

}  // namespace

SceneWorkspace::SceneWorkspace(size_t bytes) noexcept {
  [[maybe_unused]] static const bool closed = [] {
    ASAN_POISON_MEMORY_REGION(scratch, sizeof scratch);
    return true;
  }();
  if (bytes == 0) return;
  workspace_ = {scratch + kGuard, bytes};
  ASAN_UNPOISON_MEMORY_REGION(scratch + kGuard, bytes);
  std::memset(scratch + kGuard, 0xff, std::min(bytes, kFilled));
}

SceneWorkspace::~SceneWorkspace() { ASAN_POISON_MEMORY_REGION(scratch + kGuard, workspace_.size); }

}  // namespace sluice::fuzz
