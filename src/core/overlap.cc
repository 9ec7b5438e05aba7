// Compares the address ranges of a call's views, and element by element where ranges meet.
// SPDX-License-Identifier: Apache-2.0
#include "core/overlap.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>

#include "core/host_access.hpp"

namespace sluice::core {
namespace {

/// Bytes that a view's elements occupy: blocks of `block` bytes, repeated size[i] times at distances
/// of stride[i], the widest first.
struct Footprint {
  uintptr_t low = 0;
  int axes = 0;
  int64_t stride[SLUICE_MAX_RANK] = {}, size[SLUICE_MAX_RANK] = {}, block = 0;

  explicit Footprint(const Tensor& t) noexcept;

  /// Bytes from the first to the last one of the axes `from`, from + 1, ..
  [[nodiscard]] int64_t span(int from) const noexcept {
    int64_t bytes = block;
    for (int i = from; i < axes; ++i) bytes += (size[i] - 1) * stride[i];
    return bytes;
  }
};

Footprint::Footprint(const Tensor& t) noexcept : block(element_size(t.dtype)) {
  int64_t lowest = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] < 2 || t.stride[axis] == 0) continue;
    const int64_t distance = std::abs(t.stride[axis]) * block;
    if (t.stride[axis] < 0) lowest -= distance * (t.shape[axis] - 1);
    int place = axes++;
    for (; place > 0 && stride[place - 1] < distance; --place) {
      stride[place] = stride[place - 1], size[place] = size[place - 1];
    }
    stride[place] = distance, size[place] = t.shape[axis];
  }
  low = reinterpret_cast<uintptr_t>(t.data) + static_cast<uintptr_t>(lowest);
  // Axes that follow one another without a gap are one.
  for (int i = axes - 2; i >= 0; --i) {
    if (stride[i] != stride[i + 1] * size[i + 1]) continue;
    stride[i] = stride[i + 1], size[i] *= size[i + 1];
    std::copy(stride + i + 2, stride + axes, stride + i + 1);
    std::copy(size + i + 2, size + axes, size + i + 1);
    --axes;
  }
  if (axes > 0 && stride[axes - 1] == block) block *= size[--axes];
}

int64_t floor_divide(int64_t a, int64_t b) noexcept { return a / b - (a % b < 0 ? 1 : 0); }

/// Whether the axes i.. of a, from 0 on, and j.. of b, from `from` on, have no byte in common.
bool apart(const Footprint& a, int i, const Footprint& b, int j, int64_t from) noexcept {
  if (from >= a.span(i) || from + b.span(j) <= 0) return true;
  const int64_t wide = i < a.axes ? a.stride[i] : 0, other = j < b.axes ? b.stride[j] : 0;
  if (wide == 0 && other == 0) return false;
  if (wide < other) return apart(b, j, a, i, -from);
  const int64_t inner = a.span(i + 1);
  if (wide == other) {
    // Both repeat at this distance: what matters is where their blocks lie within it.
    if (inner > wide || b.span(j + 1) > wide) return false;
    const int64_t shift = from - floor_divide(from, wide) * wide;
    return apart(a, i + 1, b, j + 1, shift) && apart(a, i + 1, b, j + 1, shift - wide);
  }
  constexpr int64_t kMostCopies = 4;
  const int64_t first = std::max<int64_t>(0, floor_divide(from - inner, wide) + 1);
  const int64_t last = std::min(a.size[i] - 1, floor_divide(from + b.span(j) - 1, wide));
  if (last - first >= kMostCopies) return false;
  for (int64_t copy = first; copy <= last; ++copy) {
    if (!apart(a, i + 1, b, j, from - copy * wide)) return false;
  }
  return true;
}

/// Views of one kind that may be one and the same.
enum class Kind : uint8_t { kOther, kStates, kConvStates, kRows };

/// Addresses of a view's first byte and of the one past its last. PERF without initialisers: a call
/// has up to 32 of them, and most of them stay unused.
struct Range {
  uintptr_t low, high;
};

struct Region {
  const char* name;
  const Tensor* view;
  Kind kind;
};

bool one_view(const Region& a, const Region& b) noexcept {
  const Tensor &x = *a.view, &y = *b.view;
  if (a.kind == Kind::kOther || a.kind != b.kind || x.data != y.data) return false;
  if (!same(x.dtype, y.dtype) || x.rank != y.rank) return false;
  for (int axis = 0; axis < x.rank; ++axis) {
    const bool both = x.shape[axis] > 1 && y.shape[axis] > 1;
    if (both && x.stride[axis] != y.stride[axis]) return false;
  }
  return true;
}

struct Named {
  const char* name;
  const Tensor& view;
  Kind kind = Kind::kOther;
};

/// The views of one call: first what it writes, then what it reads.
class Regions {
 public:
  explicit Regions(const sluice_workspace& workspace) noexcept {
    if (workspace.data == nullptr || workspace.size == 0) return;
    workspace_.data = workspace.data;
    workspace_.dtype = kUInt8;
    workspace_.rank = 1;
    workspace_.shape[0] = static_cast<int64_t>(std::min<size_t>(workspace.size, INT64_MAX));
    workspace_.stride[0] = 1;
    writes({{"workspace", workspace_}});
  }
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  void writes(std::initializer_list<Named> views) noexcept {
    add(views);
    written_ = count_;
  }
  void reads(std::initializer_list<Named> views) noexcept { add(views); }

  [[nodiscard]] Status check(const char* op) const noexcept {
    for (int i = 0; i < written_; ++i) {
      for (int j = i + 1; j < count_; ++j) {
        // PERF nearly always the end of it.
        if ((ranges_[i].low >= ranges_[j].high) | (ranges_[j].low >= ranges_[i].high)) continue;
        const Region &a = regions_[i], &b = regions_[j];
        if (one_view(a, b) || !may_share(*a.view, *b.view)) continue;
        // The workspace is nobody's mistake but the view's beside it.
        return a.view == &workspace_ ? refuse(op, b, a) : refuse(op, a, b);
      }
    }
    return ok_status();
  }

 private:
  /// Most views of a call: those of a layer and the workspace.
  static constexpr int kMost = 32;

  void add(std::initializer_list<Named> views) noexcept {
    for (const Named& named : views) {
      const Tensor& t = named.view;
      if (!present(t)) continue;
      int64_t low = 0, high = 1, elements = 1;
      for (int axis = 0; axis < t.rank; ++axis) {
        const int64_t reach = (t.shape[axis] - 1) * t.stride[axis];
        low += std::min<int64_t>(reach, 0);
        high += std::max<int64_t>(reach, 0);
        elements &= -static_cast<int64_t>(t.shape[axis] != 0);
      }
      if (elements == 0 || count_ == kMost) continue;
      const auto base = reinterpret_cast<uintptr_t>(t.data);
      const int64_t width = element_size(t.dtype);
      ranges_[count_] = {base + static_cast<uintptr_t>(low * width),
                         base + static_cast<uintptr_t>(high * width)};
      regions_[count_++] = {named.name, &t, named.kind};
    }
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

  Tensor workspace_{};
  Range ranges_[kMost];
  Region regions_[kMost];
  int count_ = 0, written_ = 0;
};

void write_states(const sluice_state_io& s, Regions* r) noexcept {
  r->writes({{"state.final", s.final, Kind::kStates}});
}

void read_states(const sluice_state_io& s, Regions* r) noexcept {
  r->reads({{"state.initial", s.initial, Kind::kStates},
            {"state.read_slots", s.read_slots},
            {"state.write_slots", s.write_slots},
            {"state.has_initial_state", s.has_initial_state}});
}

void write_ring(const sluice_replay_ring& ring, Regions* r) noexcept {
  if (!present(ring.k)) return;
  r->writes({{"ring.k", ring.k},
             {"ring.delta", ring.delta},
             {"ring.decay", ring.decay},
             {"ring.next_checkpoint", ring.next_checkpoint}});
}

void read_ring(const sluice_replay_ring& ring, Regions* r) noexcept {
  if (!present(ring.k)) return;
  r->reads({{"ring.position", ring.position}, {"ring.checkpoint", ring.checkpoint}});
}

}  // namespace

bool may_share(const Tensor& a, const Tensor& b) noexcept {
  const Footprint x(a), y(b);
  return !apart(x, 0, y, 0, static_cast<int64_t>(y.low - x.low));
}

Status check_memory(const char* op, const DeltaRuleProblem& p,
                    const sluice_workspace& workspace) noexcept {
  Regions r(workspace);
  r.writes({{"o", p.o}, {"checkpoints", p.checkpoints, Kind::kStates}});
  write_states(p.state, &r);
  write_ring(p.ring, &r);
  r.reads({{"q", p.q},
           {"k", p.k},
           {"v", p.v},
           {"gate", p.gate},
           {"gate", p.key_gate},
           {"beta", p.beta},
           {"A_log", p.A_log},
           {"dt_bias", p.dt_bias},
           {"cu_seqlens", p.rows.cu_seqlens},
           {"checkpoint_slots", p.checkpoint_slots},
           {"num_accepted", p.num_accepted}});
  read_states(p.state, &r);
  read_ring(p.ring, &r);
  return r.check(op);
}

Status check_memory(const char* op, const ChunkBackwardProblem& p,
                    const sluice_workspace& workspace) noexcept {
  const DeltaRuleProblem& f = p.forward;
  Regions r(workspace);
  r.writes({{"dq", p.dq},
            {"dk", p.dk},
            {"dv", p.dv},
            {"dgate", p.dgate},
            {"dbeta", p.dbeta},
            {"dA_log", p.dA_log},
            {"ddt_bias", p.ddt_bias},
            {"dinitial", p.dinitial}});
  r.reads({{"q", f.q},
           {"k", f.k},
           {"v", f.v},
           {"gate", f.gate},
           {"beta", f.beta},
           {"A_log", f.A_log},
           {"dt_bias", f.dt_bias},
           {"cu_seqlens", f.rows.cu_seqlens},
           {"initial", f.state.initial},
           {"d_o", p.d_o},
           {"d_final", p.d_final}});
  return r.check(op);
}

Status check_memory(const char* op, const CausalConvProblem& p,
                    const sluice_workspace& workspace) noexcept {
  const sluice_conv_state_io& s = p.state;
  Regions r(workspace);
  r.writes({{"out", p.out}, {"state.final", s.final, Kind::kConvStates}});
  r.reads({{"x", p.x},
           {"weight", p.weight},
           {"bias", p.bias},
           {"cu_seqlens", p.rows.cu_seqlens},
           {"state.initial", s.initial, Kind::kConvStates},
           {"state.read_slots", s.read_slots},
           {"state.write_slots", s.write_slots},
           {"state.has_initial_state", s.has_initial_state},
           {"state.num_accepted", s.num_accepted},
           {"state.ring_position", s.ring_position}});
  return r.check(op);
}

Status check_memory(const char* op, const GatedNormProblem& p,
                    const sluice_workspace& workspace) noexcept {
  Regions r(workspace);
  r.writes({{"out", p.out, Kind::kRows}});
  r.reads({{"x", p.x, Kind::kRows}, {"z", p.z}, {"weight", p.weight}});
  return r.check(op);
}

Status check_memory(const char* op, const sluice_chunk_stage_args& args, const ChunkStageProblem& p,
                    const sluice_workspace& workspace) noexcept {
  const sluice_stage stage = p.stage;
  const bool sums = stage == SLUICE_STAGE_CHUNK_CUMSUM || stage == SLUICE_STAGE_CUMSUM_KKT;
  const bool products = stage == SLUICE_STAGE_SCALED_DOT_KKT || stage == SLUICE_STAGE_CUMSUM_KKT;
  const bool inverse = stage == SLUICE_STAGE_SOLVE_TRIL || stage == SLUICE_STAGE_SOLVE_WY;
  const bool wy = stage == SLUICE_STAGE_WY_FAST || stage == SLUICE_STAGE_SOLVE_WY;
  const bool states = stage == SLUICE_STAGE_CHUNK_H;
  const bool delta = args.rule == SLUICE_RULE_GATED_DELTA;
  const char* const values = !delta || wy ? "v" : states ? "u" : "v_new";
  const Tensor none{};
  Regions r(workspace);
  r.writes({{"g_cumsum", sums ? p.g_cumsum : none},
            {"A", products ? p.A : none},
            {"A_inverse", inverse ? p.A_inverse : none},
            {"u", p.u},
            {"w", wy ? p.w : none},
            {"v_new", p.v_new},
            {"h", states ? p.h : none},
            {"o", p.o}});
  write_states(p.state, &r);
  r.reads({{"q", p.q},
           {"k", p.k},
           {values, p.values},
           {"gate", p.gate},
           {"beta", p.beta},
           {"g_cumsum", sums ? none : p.g_cumsum},
           {"A", products ? none : p.A},
           {"A_inverse", inverse ? none : p.A_inverse},
           {"w", wy ? none : p.w},
           {"h", states ? none : p.h},
           {"cu_seqlens", p.rows.cu_seqlens}});
  read_states(p.state, &r);
  return r.check(op);
}

Status check_memory(const char* op, const sluice_layer_args& a, const LayerProblem& p,
                    const sluice_workspace& workspace) noexcept {
  const bool updated = present(p.conv[0].state.final) && !present(a.conv_final);
  const Tensor none{};
  Regions r(workspace);
  r.writes({{"out", a.out},
            {"core_out", a.core_out},
            {"conv_final", a.conv_final, Kind::kConvStates},
            {"conv_initial", updated ? a.conv_initial : none, Kind::kConvStates}});
  write_states(p.delta.state, &r);
  write_ring(a.ring, &r);
  r.reads({{"qkv", a.qkv},
           {"z", a.z},
           {"b", a.b},
           {"a", a.a},
           {"conv_weight", a.conv_weight},
           {"conv_bias", a.conv_bias},
           {"A_log", a.A_log},
           {"dt_bias", a.dt_bias},
           {"norm_weight", a.norm_weight},
           {"cu_seqlens", a.cu_seqlens},
           {"conv_initial", updated ? none : a.conv_initial, Kind::kConvStates},
           {"ring_position", a.ring_position},
           {"num_accepted", a.num_accepted}});
  read_states(p.delta.state, &r);
  read_ring(a.ring, &r);
  return r.check(op);
}

}  // namespace sluice::core
