// Reads host tensors of any dtype, and applies the sequence and slot rules of sluice.h, for the
// backends that run on the CPU. The rules are stated once, here.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_HOST_ACCESS_HPP_
#define SLUICE_CORE_HOST_ACCESS_HPP_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/dense_view.hpp"
#include "core/numeric.hpp"
#include "core/problem.hpp"

namespace sluice::core {

constexpr sluice_dtype kFloat32{2, 32}, kFloat16{2, 16}, kBFloat16{4, 16};
constexpr sluice_dtype kInt32{0, 32}, kInt64{0, 64}, kBool{6, 8}, kUInt8{1, 8};

constexpr bool same(sluice_dtype a, sluice_dtype b) noexcept {
  return a.code == b.code && a.bits == b.bits;
}
constexpr bool is_float(sluice_dtype d) noexcept {
  return same(d, kFloat32) || same(d, kFloat16) || same(d, kBFloat16);
}
/// Bytes of one element.
constexpr int64_t element_size(sluice_dtype d) noexcept { return d.bits / 8; }

/// Element offset of index (i0, i1, ..) in a view.
template <class... Index>
constexpr int64_t offset_of(const Tensor& t, Index... index) noexcept {
  int dimension = 0;
  int64_t offset = 0;
  ((offset += static_cast<int64_t>(index) * t.stride[dimension++]), ...);
  return offset;
}

/// Address of element (i0, i1, ..).
template <class... Index>
void* address(const Tensor& t, Index... index) noexcept {
  return static_cast<std::byte*>(t.data) + offset_of(t, index...) * element_size(t.dtype);
}

/// Value of a floating element at `address`.
inline float load_float(const void* address, sluice_dtype dtype) noexcept {
  if (same(dtype, kFloat32)) {
    float value;
    std::memcpy(&value, address, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, address, sizeof bits);
  return same(dtype, kBFloat16) ? float_from_bfloat16(bits) : float_from_float16(bits);
}

/// Stores with one round-to-nearest-even.
inline void store_float(void* address, sluice_dtype dtype, float value) noexcept {
  if (same(dtype, kFloat32)) {
    std::memcpy(address, &value, sizeof value);
    return;
  }
  const uint16_t bits =
      same(dtype, kBFloat16) ? bfloat16_from_float(value) : float16_from_float(value);
  std::memcpy(address, &bits, sizeof bits);
}

/// Value of an int32/int64 element at `address`.
inline int64_t load_index(const void* address, sluice_dtype dtype) noexcept {
  if (same(dtype, kInt64)) {
    int64_t value;
    std::memcpy(&value, address, sizeof value);
    return value;
  }
  int32_t value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

/// Rows of one sequence: tokens begin..end-1 of batch entry `batch`.
struct TokenRange {
  int64_t batch, begin, end;
  int64_t size() const noexcept { return end - begin; }
};

/// Rows of sequence n. cu_seqlens was checked to be monotone and in range.
inline TokenRange token_range(const Rows& rows, int64_t n) noexcept {
  if (!present(rows.cu_seqlens)) return {n, 0, rows.T};
  return {0, load_index(address(rows.cu_seqlens, n), rows.cu_seqlens.dtype),
          load_index(address(rows.cu_seqlens, n + 1), rows.cu_seqlens.dtype)};
}

/// Rows of a batch entry that belong to sequences: those past it to none.
inline int64_t rows_end(const Rows& rows) noexcept {
  if (!present(rows.cu_seqlens)) return rows.T;
  return load_index(address(rows.cu_seqlens, rows.N), rows.cu_seqlens.dtype);
}

/// Slot value at (n, column), or `n` where slots are absent. Rank 1 slots have one column.
inline int64_t slot_at(const Tensor& slots, int64_t n, int64_t column) noexcept {
  if (!present(slots)) return n;
  return slots.rank == 1 ? load_index(address(slots, n), slots.dtype)
                         : load_index(address(slots, n, column), slots.dtype);
}

/// Column of read_slots that holds sequence n's start state.
inline int64_t start_column(const Tensor& num_accepted, const Tensor& read_slots,
                            int64_t n) noexcept {
  if (!present(num_accepted) || read_slots.rank < 2) return 0;
  const int64_t accepted = load_index(address(num_accepted, n), num_accepted.dtype);
  return std::min(std::max<int64_t>(accepted, 1), read_slots.shape[1]) - 1;
}

/// Whether sequence n starts from its state (true) or from zeros.
inline bool has_initial(const Tensor& has_initial_state, int64_t n) noexcept {
  return !present(has_initial_state) ||
         *static_cast<const uint8_t*>(address(has_initial_state, n)) != 0;
}

/// What sequence n does with its states. Slots are -1 where nothing is read or written.
struct SlotPlan {
  bool padded = false;  ///< the whole row is padding: zero outputs, no state touched
  int64_t read = -1;    ///< slot of `initial` to start from; -1 = zeros
  int64_t write = -1;   ///< slot of `final` for the last state; -1 = none
};

/// The pad and slot rules for column 0 / the accepted column. Works for sluice_state_io and
/// sluice_conv_state_io alike.
template <class StateIo>
SlotPlan plan_slots(const StateIo& state, const Tensor& num_accepted, int64_t n) noexcept {
  SlotPlan plan;
  const bool pooled = present(state.initial) || present(state.final);
  if (!pooled && !present(state.read_slots)) return plan;
  const int64_t read =
      slot_at(state.read_slots, n, start_column(num_accepted, state.read_slots, n));
  if (present(state.read_slots) && read < state.pad_below) {
    plan.padded = true;
    return plan;
  }
  if (present(state.initial) && has_initial(state.has_initial_state, n)) plan.read = read;
  if (present(state.final)) {
    const int64_t write = slot_at(state.write_slots, n, 0);
    const bool skip = present(state.write_slots) && write < state.pad_below;
    plan.write = skip ? -1 : write;
  }
  return plan;
}

/// What a call does with the replay ring of a sequence, by the rules of sluice.h.
struct RingPlan {
  int64_t live = 0;      ///< entries ahead of the call's tokens
  int64_t position = 0;  ///< tokens ahead of them; entry of token i: i mod L
  int64_t L = 0;
  bool fold = false;  ///< live entries go into the state, the checkpoint to `position`

  /// Entry number e, counted from the first live one on.
  int64_t place(int64_t e) const noexcept { return (position - live + e) % L; }
};

/// Cursors were checked. A row that starts from zeros has no live entries and folds.
inline RingPlan plan_ring(const DeltaRuleProblem& p, int64_t n) noexcept {
  RingPlan plan;
  plan.L = p.ring.k.shape[1];
  plan.position = slot_at(p.ring.position, n, 0);
  const int64_t live = plan.position - slot_at(p.ring.checkpoint, n, 0);
  const bool starts = has_initial(p.state.has_initial_state, n);
  plan.live = starts ? live : 0;
  plan.fold =
      !starts || p.ring.fold == SLUICE_RING_FOLD_ALWAYS || live > plan.L - 2 * p.rows.max_tokens;
  return plan;
}

/// Stores an int32/int64 element at `address`.
inline void store_index(void* address, sluice_dtype dtype, int64_t value) noexcept {
  const int32_t narrow = static_cast<int32_t>(value);
  if (same(dtype, kInt64)) {
    std::memcpy(address, &value, sizeof value);
  } else {
    std::memcpy(address, &narrow, sizeof narrow);
  }
}

/// next_checkpoint[n], where it is given.
inline void store_next_checkpoint(const DeltaRuleProblem& p, int64_t n,
                                  const RingPlan& plan) noexcept {
  const Tensor& next = p.ring.next_checkpoint;
  if (!present(next)) return;
  const int64_t kept = slot_at(p.ring.checkpoint, n, 0);
  store_index(address(next, n), next.dtype, plan.fold ? plan.position : kept);
}

}  // namespace sluice::core

#endif  // SLUICE_CORE_HOST_ACCESS_HPP_
