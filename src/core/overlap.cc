// Compares the address ranges of what a call writes with those of its other views.
// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "core/host_access.hpp"

namespace sluice::core {
namespace {

/// Addresses of a view's first byte and of the one past its last. PERF without initialisers: most of
/// those that a call could have stay unused.
struct Range {
  uintptr_t low, high;
};

struct Region {
  const char* name;
  const Tensor* view;
  Pool pool;
};

/// Elements of equal indices lie in the same bytes.
bool same_elements(const Tensor& x, const Tensor& y) noexcept {
  if (x.data != y.data || !same(x.dtype, y.dtype) || x.rank != y.rank) return false;
  for (int axis = 0; axis < x.rank; ++axis) {
    const bool both = x.shape[axis] > 1 && y.shape[axis] > 1;
    if (both && x.stride[axis] != y.stride[axis]) return false;
  }
  return true;
}

bool one_view(const Region& a, const Region& b) noexcept {
  return a.pool != Pool::kNone && a.pool == b.pool && same_elements(*a.view, *b.view);
}

/// Element of a view that lies before all others.
int64_t lowest(const Tensor& t) noexcept {
  int64_t low = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    low += std::min<int64_t>((t.shape[axis] - 1) * t.stride[axis], 0);
  }
  return low;
}

bool is_written(const CallViews& call, const ViewField& field) noexcept {
  if ((field.writers & call.writer) != 0) return true;
  const auto* const args = static_cast<const std::byte*>(call.args);
  return call.in_place && field.other != 0 &&
         !present(*reinterpret_cast<const Tensor*>(args + field.other));
}

/// The views of one call: first what it writes, then what it reads.
class Regions {
 public:
  Regions(const CallViews& call, const sluice_workspace& workspace) noexcept {
    if (workspace.data != nullptr && workspace.size > 0) {
      const auto bytes = static_cast<int64_t>(std::min<size_t>(workspace.size, INT64_MAX));
      workspace_ = {workspace.data, {}, kUInt8, 1, {bytes}, {1}};
      add({"workspace", &workspace_, Pool::kNone});
    }
    const ViewField* read[kMostViews];
    size_t reads = 0;
    for (const ViewField& field : call.fields) {
      const Tensor& t = field.of(call.args);
      if (!present(t)) continue;
      if (is_written(call, field)) {
        add({field.name, &t, field.pool});
      } else {
        read[reads++] = &field;
      }
    }
    written_ = count_;
    for (size_t i = 0; i < reads; ++i) {
      add({read[i]->name, &read[i]->of(call.args), read[i]->pool});
    }
  }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

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
  void add(const Region& region) noexcept {
    const Tensor& t = *region.view;
    // Sums of all reaches. PERF nearly no view has an axis that runs down.
    int64_t reach = 0, negative = 0, empty = 0, low = 0;
    for (int axis = 0; axis < t.rank; ++axis) {
      const int64_t steps = t.shape[axis] - 1, elements = steps * t.stride[axis];
      reach += elements;
      negative |= elements;
      empty |= steps;
    }
    if (empty < 0) return;
    if (negative < 0) low = lowest(t);
    const auto base = reinterpret_cast<uintptr_t>(t.data);
    const int64_t width = element_size(t.dtype);
    ranges_[count_] = {base + static_cast<uintptr_t>(low * width),
                       base + static_cast<uintptr_t>((reach - low + 1) * width)};
    regions_[count_++] = region;
  }

  static Status refuse(const char* op, const Region& a, const Region& b) noexcept {
    const auto distance = static_cast<long long>(reinterpret_cast<intptr_t>(a.view->data) -
                                                 reinterpret_cast<intptr_t>(b.view->data));
    return Status::failure(Code::kInvalidArgument,
                           "%s: %s.data = %lld bytes %s %s.data, expected memory of its own (what "
                           "a call writes may overlap no other view)",
                           op, a.name, std::abs(distance), distance < 0 ? "before" : "after",
                           b.name);
  }

  Tensor workspace_;
  Range ranges_[kMostViews + 1];
  Region regions_[kMostViews + 1];
  int count_ = 0, written_ = 0;
};

}  // namespace

void keep_named_views(const ChunkStageProblem& p, sluice_chunk_stage_args* a) noexcept {
  const auto keep = [](Tensor* given, bool named) {
    if (!named) given->data = nullptr;
  };
  const bool delta = a->rule == SLUICE_RULE_GATED_DELTA;
  const bool reads_u = delta && p.stage == SLUICE_STAGE_CHUNK_H;
  const bool reads_new = delta && p.stage == SLUICE_STAGE_CHUNK_O;
  keep(&a->v, present(p.values) && !reads_u && !reads_new);
  keep(&a->u, present(p.u) || reads_u);
  keep(&a->v_new, present(p.v_new) || reads_new);
  const std::pair<Tensor*, const Tensor&> others[] = {
      {&a->q, p.q},
      {&a->k, p.k},
      {&a->gate, p.gate},
      {&a->beta, p.beta},
      {&a->g_cumsum, p.g_cumsum},
      {&a->A_log, p.A_log},
      {&a->dt_bias, p.dt_bias},
      {&a->A, p.A},
      {&a->A_inverse, p.A_inverse},
      {&a->w, p.w},
      {&a->h, p.h},
      {&a->o, p.o},
      {&a->cu_seqlens, p.rows.cu_seqlens},
      {&a->state.initial, p.state.initial},
      {&a->state.final, p.state.final},
      {&a->state.read_slots, p.state.read_slots},
      {&a->state.write_slots, p.state.write_slots},
      {&a->state.has_initial_state, p.state.has_initial_state}};
  for (const auto& [given, taken] : others) keep(given, present(taken));
}

Status check_memory(const char* op, const CallViews& call,
                    const sluice_workspace& workspace) noexcept {
  return Regions(call, workspace).check(op);
}

}  // namespace sluice::core
