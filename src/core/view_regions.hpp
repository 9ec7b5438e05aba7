// Lists the views of a call, and finds one that it writes and that shares memory with another.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_VIEW_REGIONS_HPP_
#define SLUICE_CORE_VIEW_REGIONS_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>

#include "core/host_access.hpp"
#include "core/overlap.hpp"

namespace sluice::core {

/// Views of one kind that may be one and the same.
enum class Kind : uint8_t { kOther, kStates, kConvStates, kKeyConvStates, kValueConvStates, kRows };

/// Addresses of a view's first byte and of the one past its last. PERF without initialisers: most of
/// those that a call could have stay unused.
struct Range {
  uintptr_t low, high;
};

/// A view that a call's struct may have. PERF tables of them are made at compile time: a call goes
/// through up to 24 views, of which it has a dozen.
struct Field {
  const char* name;
  size_t offset;  ///< of a Tensor within the struct
  Kind kind = Kind::kOther;
  unsigned when = 0;  ///< the view counts in calls that have this bit; 0: in all
};

/// What the delta rule reads, in every operator that runs it.
inline constexpr Field kDeltaRuleRead[] = {
    {"q", offsetof(DeltaRuleProblem, q)},
    {"k", offsetof(DeltaRuleProblem, k)},
    {"v", offsetof(DeltaRuleProblem, v)},
    {"gate", offsetof(DeltaRuleProblem, gate)},
    {"gate", offsetof(DeltaRuleProblem, key_gate)},
    {"beta", offsetof(DeltaRuleProblem, beta)},
    {"A_log", offsetof(DeltaRuleProblem, A_log)},
    {"dt_bias", offsetof(DeltaRuleProblem, dt_bias)},
    {"cu_seqlens", offsetof(DeltaRuleProblem, rows.cu_seqlens)}};
/// What a convolution and its gradients read, but for states.
inline constexpr Field kCausalConvRead[] = {
    {"x", offsetof(CausalConvProblem, x)},
    {"weight", offsetof(CausalConvProblem, weight)},
    {"bias", offsetof(CausalConvProblem, bias)},
    {"cu_seqlens", offsetof(CausalConvProblem, rows.cu_seqlens)}};
inline constexpr Field kGatedNormRead[] = {{"x", offsetof(GatedNormProblem, x), Kind::kRows},
                                           {"z", offsetof(GatedNormProblem, z)},
                                           {"weight", offsetof(GatedNormProblem, weight)}};

/// The views of a struct that a call has, as a table lists them.
template <bool kWritten, size_t kCount>
struct Part {
  const std::byte* of;
  std::span<const Field> fields;
};

/// @param there whether the call has such a struct at all
template <class Struct, size_t kCount>
Part<true, kCount> written(const Struct& of, const Field (&fields)[kCount], bool there = true) {
  return {reinterpret_cast<const std::byte*>(&of), {fields, there ? kCount : 0}};
}
template <class Struct, size_t kCount>
Part<false, kCount> read(const Struct& of, const Field (&fields)[kCount], bool there = true) {
  return {reinterpret_cast<const std::byte*>(&of), {fields, there ? kCount : 0}};
}

template <bool... kWritten>
consteval bool written_first() {
  bool first = true, ordered = true;
  ((ordered = ordered && (first || !kWritten), first = kWritten), ...);
  return ordered;
}

struct Region {
  const char* name;
  const Tensor* view;
  Kind kind;
};

/// Elements of equal indices lie in the same bytes.
inline bool same_elements(const Tensor& x, const Tensor& y) noexcept {
  if (x.data != y.data || !same(x.dtype, y.dtype) || x.rank != y.rank) return false;
  for (int axis = 0; axis < x.rank; ++axis) {
    const bool both = x.shape[axis] > 1 && y.shape[axis] > 1;
    if (both && x.stride[axis] != y.stride[axis]) return false;
  }
  return true;
}

inline bool one_view(const Region& a, const Region& b) noexcept {
  return a.kind != Kind::kOther && a.kind == b.kind && same_elements(*a.view, *b.view);
}

/// The views of one call: first what it writes, then what it reads.
class Regions {
 public:
  /// Most views of a call, the workspace among them. check_views() refuses to compile with more.
  static constexpr size_t kMost = 48;

  /// @param bits of Field::when that the call has
  Regions(const sluice_workspace& workspace, unsigned bits) noexcept : bits_(bits) {
    if (workspace.data == nullptr || workspace.size == 0) return;
    const auto bytes = static_cast<int64_t>(std::min<size_t>(workspace.size, INT64_MAX));
    workspace_ = {workspace.data, {}, kUInt8, 1, {bytes}, {1}};
    static constexpr Field kWorkspace[] = {{"workspace", 0}};
    add(written(workspace_, kWorkspace));
  }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  template <size_t kCount>
  void add(const Part<true, kCount>& part) noexcept {
    add(part.of, part.fields);
    written_ = count_;
  }
  template <size_t kCount>
  void add(const Part<false, kCount>& part) noexcept {
    add(part.of, part.fields);
  }

  [[nodiscard]] Status check(const char* op) const noexcept {
    for (int i = 0; i < written_; ++i) {
      const Range mine = ranges_[i];
      for (int j = i + 1; j < count_; ++j) {
        // PERF nearly always the end of it.
        if ((mine.low >= ranges_[j].high) | (ranges_[j].low >= mine.high)) continue;
        const Region &a = regions_[i], &b = regions_[j];
        if (one_view(a, b) || !may_share(*a.view, *b.view)) continue;
        // The workspace is nobody's mistake but the view's beside it.
        return a.view == &workspace_ ? refuse(op, b, a) : refuse(op, a, b);
      }
    }
    return ok_status();
  }

 private:
  /// PERF not inlined into every operator: code that one call in a million microseconds runs is
  /// fetched as it runs.
  [[gnu::noinline]] void add(const std::byte* from, std::span<const Field> fields) noexcept {
    int count = count_;
    for (const Field& field : fields) {
      const auto& t = *reinterpret_cast<const Tensor*>(from + field.offset);
      if (!present(t) || (field.when != 0 && (field.when & bits_) == 0)) continue;
      // Sums of all reaches. PERF nearly no view has an axis that runs down.
      int64_t reach = 0, negative = 0, empty = 0, low = 0;
      for (int axis = 0; axis < t.rank; ++axis) {
        const int64_t steps = t.shape[axis] - 1, elements = steps * t.stride[axis];
        reach += elements;
        negative |= elements;
        empty |= steps;
      }
      if (empty < 0) continue;
      if (negative < 0) low = lowest(t);
      const auto base = reinterpret_cast<uintptr_t>(t.data);
      const int64_t width = element_size(t.dtype);
      ranges_[count] = {base + static_cast<uintptr_t>(low * width),
                        base + static_cast<uintptr_t>((reach - low + 1) * width)};
      regions_[count++] = {field.name, &t, field.kind};
    }
    count_ = count;
  }

  /// Element of a view that lies before all others.
  static int64_t lowest(const Tensor& t) noexcept {
    int64_t low = 0;
    for (int axis = 0; axis < t.rank; ++axis) {
      low += std::min<int64_t>((t.shape[axis] - 1) * t.stride[axis], 0);
    }
    return low;
  }

  /// The name that the caller gave a view: pools in place, and keys that stand in for absent queries,
  /// are listed under another one first. Not the name of `other`, which may be the same memory. Slots
  /// that are written are those read where none are given, and listed after them.
  [[nodiscard]] const char* given_name(const Region& region, const Region& other) const noexcept {
    const char* name = region.name;
    if (region.view->dtype.code == 0) return name;  // integers: slots
    for (int i = 0; i < count_; ++i) {
      const Region& each = regions_[i];
      if (&each <= &region || &each == &other || !same_elements(*each.view, *region.view)) continue;
      const Tensor &x = *each.view, &y = *region.view;
      if (std::equal(x.shape, x.shape + x.rank, y.shape)) name = each.name;
    }
    return name;
  }

  [[nodiscard]] Status refuse(const char* op, const Region& a, const Region& b) const noexcept {
    const auto distance = static_cast<long long>(reinterpret_cast<intptr_t>(a.view->data) -
                                                 reinterpret_cast<intptr_t>(b.view->data));
    return Status::failure(Code::kInvalidArgument,
                           "%s: %s.data = %lld bytes %s %s.data, expected memory of its own (what "
                           "a call writes may overlap no other view)",
                           op, given_name(a, b), std::abs(distance),
                           distance < 0 ? "before" : "after", given_name(b, a));
  }

  const unsigned bits_;
  Tensor workspace_;
  Range ranges_[kMost];
  Region regions_[kMost];
  int count_ = 0, written_ = 0;
};

/// Refuses a call in which something written overlaps another view or the workspace. Parts that are
/// written come before those that are read.
template <bool... kWritten, size_t... kCounts>
Status check_views(const char* op, const sluice_workspace& workspace, unsigned bits,
                   const Part<kWritten, kCounts>&... parts) noexcept {
  static_assert((1 + ... + kCounts) <= Regions::kMost, "a call with more views than Regions holds");
  static_assert(written_first<kWritten...>(), "Regions takes what is written first");
  Regions regions(workspace, bits);
  (regions.add(parts), ...);
  return regions.check(op);
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_VIEW_REGIONS_HPP_
