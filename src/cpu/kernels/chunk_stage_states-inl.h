// Computes the stages that carry a state from chunk to chunk: chunk_h, and chunk_o without supplied
// states.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CHUNK_STAGE_STATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CHUNK_STAGE_STATES_INL_H_
#undef SLUICE_CPU_KERNELS_CHUNK_STAGE_STATES_INL_H_
#else
#define SLUICE_CPU_KERNELS_CHUNK_STAGE_STATES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/kernels/chunk_stage-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

/// All chunks of a sequence on some columns of a value head's state.
class SequenceStage : KeyStageRows {
 public:
  explicit SequenceStage(const StageSequenceItem& item) noexcept
      : KeyStageRows(item.problem, item.layout, item.scratch), item_(item) {}

  void run() const noexcept {
    const core::TokenRange range = core::token_range(p_.rows, item_.n);
    const core::SlotPlan plan = core::plan_slots(p_.state, core::Tensor{}, item_.n);
    start_from(plan.padded ? -1 : plan.read);
    for (int64_t c = 0; c < core::chunk_count(range.size(), p_.C); ++c) {
      const int64_t begin = range.begin + c * p_.C;
      const StageChunk chunk{{range.batch, begin, std::min(begin + p_.C, range.end)},
                             range.batch,
                             item_.first_entry + c};
      if (plan.padded) {
        zero(chunk);
      } else if (p_.stage == SLUICE_STAGE_CHUNK_H) {
        states(chunk);
      } else {
        outputs(chunk);
      }
    }
    if (plan.write < 0) return;
    store_state(core::address(p_.state.final, plan.write, item_.head, 0, 0), p_.state.final.dtype);
  }

 private:
  PanelColumns panel() const noexcept {
    return {item_.first_column, item_.columns, layout_.V_stride};
  }
  void start_from(int64_t slot) const noexcept {
    const core::Tensor& pool = p_.state.initial;
    float* const S = at(layout_.state);
    const void* const from = slot < 0 ? nullptr : core::address(pool, slot, item_.head, 0, 0);
    load_panel(from, pool.dtype, state_layout(), p_.K, p_.V, panel(), S);
    // Rows past K take part in the update of the last tile.
    std::fill(S + p_.K * layout_.V_stride, S + layout_.K_stride * layout_.V_stride, 0.0f);
  }
  void store_state(void* to, sluice_dtype dtype) const noexcept {
    store_panel(at(layout_.state), dtype, state_layout(), p_.K, p_.V, panel(), to);
  }
  void store_chunk_state(const StageChunk& chunk) const noexcept {
    if (!core::present(p_.h)) return;
    store_state(core::address(p_.h, chunk.h_row, chunk.h_entry, item_.head, 0, 0), p_.h.dtype);
  }

  void load_values(const StageChunk& chunk) const noexcept {
    load_rows(p_.values, chunk, item_.head, item_.first_column, item_.columns, at(layout_.values),
              layout_.V_stride);
  }
  void store_values(int64_t from, const StageChunk& chunk,
                    const core::Tensor& view) const noexcept {
    store_rows(at(from), layout_.V_stride, chunk, item_.head, item_.first_column, item_.columns,
               view);
  }

  void zero(const StageChunk& chunk) const noexcept {
    store_chunk_state(chunk);
    float* const rows = at(layout_.values);
    std::fill(rows, rows + p_.C * layout_.V_stride, 0.0f);
    for (const core::Tensor* view : {&p_.o, &p_.v_new}) {
      if (core::present(*view)) store_values(layout_.values, chunk, *view);
    }
  }

  void states(const StageChunk& chunk) const noexcept {
    const int64_t n = chunk.count(), rows = tile_rows(n), stride = layout_.V_stride;
    store_chunk_state(chunk);
    load_values(chunk);
    if (core::present(p_.w)) {
      load_keys(p_.w, chunk, item_.head, layout_.q);
      product<false>(rows_of(layout_.q, layout_.K_stride), {at(layout_.state), stride}, rows,
                     stride, p_.K, Into::kSubtract, {at(layout_.values), stride});
    }
    if (core::present(p_.v_new)) store_values(layout_.values, chunk, p_.v_new);
    load_keys(p_.k, chunk, p_.key_head(item_.head), layout_.k);
    if (p_.key_gates) {
      load_key_sums(chunk, item_.head);
      return key_update(n);
    }
    load_sums(chunk, item_.head);
    decay_ends(n);
    update(n);
  }

  void outputs(const StageChunk& chunk) const noexcept {
    const int64_t n = chunk.count(), key_head = p_.key_head(item_.head);
    load_k(chunk, key_head);
    load_keys(p_.q, chunk, key_head, layout_.q);
    load_values(chunk);
    if (p_.key_gates) {
      load_key_sums(chunk, item_.head);
      read_key_out(n);
    } else {
      token_products(layout_.q, n);
      load_sums(chunk, item_.head);
      decay_ends(n);
      read_out(n);
    }
    store_values(layout_.out, chunk, p_.o);
    p_.key_gates ? key_update(n) : update(n);
  }

  /// S <- exp(G_n) S + k^T diag(exp(G_n - G)) values; the values are used up.
  void update(int64_t n) const noexcept {
    const int64_t stride = layout_.V_stride, rows = tile_rows(p_.K);
    float* const values = at(layout_.values);
    float* const S = at(layout_.state);
    for (int64_t i = 0; i < n; ++i) scale_row(since()[i], stride, values + i * stride);
    for (int64_t i = 0; i < rows; ++i) scale_row(until()[n - 1], stride, S + i * stride);
    product<false>({at(layout_.k), 1, layout_.K_stride}, {values, stride}, rows, stride, n,
                   Into::kAdd, {S, stride});
  }

  /// S <- diag(exp(G_n)) S + (exp(G_n - G) * k)^T values; k is used up.
  void key_update(int64_t n) const noexcept {
    const int64_t stride = layout_.V_stride, K_stride = layout_.K_stride;
    for (int64_t i = 0; i < n; ++i) {
      float* const row = at(layout_.k) + i * K_stride;
      decay_row(n - 1, i, row, row);
    }
    float* const decays = at(layout_.sums);
    std::fill(decays, decays + K_stride, 1.0f);
    decay_row(n - 1, kStart, decays, decays);
    float* const S = at(layout_.state);
    for (int64_t l = 0; l < p_.K; ++l) scale_row(decays[l], stride, S + l * stride);
    product<false>({at(layout_.k), 1, K_stride}, {at(layout_.values), stride}, tile_rows(p_.K),
                   stride, n, Into::kAdd, {S, stride});
  }

  const StageSequenceItem& item_;
};

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CHUNK_STAGE_STATES_INL_H_
