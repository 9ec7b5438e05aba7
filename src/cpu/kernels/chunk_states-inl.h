// Loads, stores and addresses the states of one item of chunk_forward (compiled once for each
// instruction set).
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_STATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_STATES_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_STATES_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_STATES_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/host_access.hpp"
#include "cpu/kernels/chunk_pairs.hpp"
#include "cpu/kernels/chunk_plan.hpp"
#include "cpu/kernels/chunk_tiles-inl.h"
#include "cpu/kernels/state_panels-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

/// An item with its heads, its scratch and its states: panels of kTileColumns columns in scratch.
class ItemStates {
 public:
  explicit ItemStates(const ChunkItem& item) noexcept
      : item_(item),
        problem_(item.problem),
        plan_(item.plan),
        range_(core::token_range(problem_.rows, item.n)),
        slots_(core::plan_slots(problem_.state, core::Tensor{}, item.n)) {}

 protected:
  int64_t key_head(int64_t key) const noexcept { return item_.first_key_head + key; }

  int64_t value_head(int64_t key, int64_t index) const noexcept {
    return item_.value_head(key_head(key), index);
  }

  float* scratch(int64_t offset) const noexcept { return item_.scratch + offset; }

  /// Panel of value head `index` of key head `key` that starts `column` columns into the item.
  float* panel(int64_t key, int64_t index, int64_t column) const noexcept {
    const int64_t head = key * item_.heads + index;
    return scratch(plan_.state + head * plan_.state_head + column * plan_.column_floats);
  }

  PanelColumns panel_columns(int64_t column) const noexcept {
    return {item_.first_column + column, std::min(kTileColumns, item_.columns - column),
            kTileColumns};
  }

  sluice_state_layout layout() const noexcept {
    return static_cast<sluice_state_layout>(problem_.state.layout);
  }

  void write_zeros() const noexcept {
    const size_t bytes = static_cast<size_t>(item_.columns * core::element_size(problem_.o.dtype));
    for (int64_t t = range_.begin; t < range_.end; ++t) {
      for (int64_t head = 0; head < item_.key_heads * item_.heads; ++head) {
        const int64_t h = value_head(head / item_.heads, head % item_.heads);
        std::memset(core::address(problem_.o, range_.batch, t, h, item_.first_column), 0, bytes);
      }
    }
  }

  void load_states(int64_t key) const noexcept {
    const core::Tensor& pool = problem_.state.initial;
    for (int64_t index = 0; index < item_.heads; ++index) {
      const int64_t h = value_head(key, index);
      const void* state = slots_.read < 0 ? nullptr : core::address(pool, slots_.read, h, 0, 0);
      for (int64_t column = 0; column < item_.columns; column += kTileColumns) {
        float* const to = panel(key, index, column);
        load_panel(state, pool.dtype, layout(), problem_.K, problem_.V, panel_columns(column), to);
        // Rows past K take part in the update of the last tile.
        if (plan_.pairs) {
          round_panel(to, problem_.K);
        } else {
          std::fill(to + problem_.K * kTileColumns, to + plan_.K_rows * kTileColumns, 0.0f);
        }
      }
    }
  }

  void store_states(int64_t key, const core::Tensor& pool, int64_t slot) const noexcept {
    for (int64_t index = 0; index < item_.heads; ++index) {
      void* const state = core::address(pool, slot, value_head(key, index), 0, 0);
      for (int64_t column = 0; column < item_.columns; column += kTileColumns) {
        store_panel(panel(key, index, column), pool.dtype, layout(), problem_.K, problem_.V,
                    panel_columns(column), state);
      }
    }
  }

  void store_checkpoint(int64_t key, int64_t done) const noexcept {
    if (!core::present(problem_.checkpoints) || done % problem_.checkpoint_every != 0) return;
    const core::Tensor& slots = problem_.checkpoint_slots;
    const int64_t j = done / problem_.checkpoint_every - 1;
    if (j >= slots.shape[1]) return;
    const int64_t slot = core::slot_at(slots, item_.n, j);
    if (slot >= problem_.state.pad_below) store_states(key, problem_.checkpoints, slot);
  }

  const ChunkItem& item_;
  const core::DeltaRuleProblem& problem_;
  const ChunkScratch& plan_;
  const core::TokenRange range_;
  const core::SlotPlan slots_;
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_STATES_INL_H_
