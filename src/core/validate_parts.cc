// Rules that several operators share: rows, state pools, slots, and what host memory holds.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/environment.hpp"
#include "core/host_access.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;  // printf's type for 64 bits

constexpr int64_t kMostPosition = int64_t{1} << 62;

/// Slots: rank 1 [N], or rank 2 [N, >= min_columns] where rank 2 is allowed.
void check_slots(Checker& c, const char* name, const Tensor& slots, int64_t N, bool allow_columns,
                 int64_t min_columns) noexcept {
  if (!c.ok() || !present(slots)) return;
  const int rank = allow_columns && slots.rank == 2 ? 2 : 1;
  if (!c.optional(name, slots, rank, Dtypes::kIndex)) return;
  c.dimension(name, slots, 0, N, "N sequences");
  if (rank == 2) c.dimension_at_least(name, slots, 1, min_columns, "columns, one a token");
}

void check_flags(Checker& c, const char* name, const Tensor& flags, int64_t N) noexcept {
  if (c.optional(name, flags, 1, Dtypes::kFlag)) c.dimension(name, flags, 0, N, "N sequences");
}

/// Speculation keeps W - 2 old columns and every token's input.
void check_window(Checker& c, const CausalConvProblem& p, int64_t tokens) noexcept {
  if (c.ok() && p.L < p.W - 2 + tokens) {
    c.fail("conv state columns L = %lld, expected >= %lld (W - 2 + tokens, with num_accepted)",
           static_cast<ll>(p.L), static_cast<ll>(p.W) - 2 + tokens);
  }
}

}  // namespace

bool debug_checks() noexcept {
  static const bool on = switched_on(Variable::kDebug);
  return on;
}

void check_rows(Checker& c, const char* name, const Tensor& t, const Tensor& cu_seqlens, bool step,
                int64_t max_tokens, Rows* rows) noexcept {
  if (!c.ok()) return;
  const int64_t B = t.shape[0];
  const int64_t T = t.shape[1];
  *rows = {B, T, B, {}, T};
  if (c.optional("cu_seqlens", cu_seqlens, 1, Dtypes::kIndex)) {
    c.dimension_at_least("cu_seqlens", cu_seqlens, 0, 1, "N + 1 offsets");
    if (c.ok() && B != 1) {
      c.fail("%s.shape[0] = %lld, expected 1 (packed rows have one batch entry)", name,
             static_cast<ll>(B));
    }
    if (c.ok() && cu_seqlens.shape[0] - 1 > kMostSequences) {
      c.unsupported("cu_seqlens.shape[0] = %lld, expected at most 2^31 (2^31 - 1 sequences)",
                    static_cast<ll>(cu_seqlens.shape[0]));
    }
    rows->cu_seqlens = cu_seqlens;
    rows->N = cu_seqlens.shape[0] - 1;
    if (step && c.ok() && (max_tokens < 1 || max_tokens > kMaxStepTokens)) {
      c.fail("max_tokens = %lld, expected 1 to %lld (bound on one sequence's tokens)",
             static_cast<ll>(max_tokens), static_cast<ll>(kMaxStepTokens));
    }
    if (!step && c.ok() && max_tokens < 0) {
      c.fail("max_tokens = %lld, expected >= 0 (0: unknown)", static_cast<ll>(max_tokens));
    }
    if (step) rows->max_tokens = max_tokens;
    if (!step && max_tokens > 0) rows->longest = std::min(max_tokens, T);
  } else if (step && c.ok() && T > kMaxStepTokens) {
    c.fail("%s.shape[1] = %lld, expected <= %lld tokens (longer rows are a prefill's)", name,
           static_cast<ll>(T), static_cast<ll>(kMaxStepTokens));
  }
  if (c.ok() && B > kMostSequences) {
    c.unsupported("%s.shape[0] = %lld, expected at most 2^31 - 1 sequences", name,
                  static_cast<ll>(B));
  }
}

void check_pool(Checker& c, const char* name, const Tensor& pool, const DeltaRuleProblem& p,
                int64_t min_slots) noexcept {
  if (!c.optional(name, pool, 4, Dtypes::kFloat)) return;
  const bool kv = p.state.layout == SLUICE_STATE_KV;
  const int64_t rows = kv ? p.K : p.V;
  const int64_t columns = kv ? p.V : p.K;
  c.dimension(name, pool, 1, p.HV, "HV value heads");
  c.dimension(name, pool, 2, rows, kv ? "K, layout KV" : "V, layout VK");
  c.dimension(name, pool, 3, columns, kv ? "V, layout KV" : "K, layout VK");
  c.dimension_at_least(name, pool, 0, min_slots, "slots for N sequences without slot indices");
  check_slot_memory(c, name, pool);
}

void check_state_io(Checker& c, DeltaRuleProblem* p) noexcept {
  if (!c.ok()) return;
  const bool step = p->op == SLUICE_OP_RECURRENT_STEP;
  const bool per_token = step && p->state_writes == SLUICE_STATE_WRITE_PER_TOKEN;
  sluice_state_io& s = p->state;
  c.choice("state.layout", s.layout, 2, "0 (KV) or 1 (VK)");
  c.reserved(s.reserved);
  if (c.ok() && s.pad_below < 0) {
    c.fail("state.pad_below = %lld, expected >= 0", static_cast<ll>(s.pad_below));
  }
  if (step && p->state_writes != SLUICE_STATE_WRITE_NONE) {
    if (!present(s.final)) s.final = s.initial;
    if (c.ok() && !present(s.initial)) {
      c.fail("state.initial = absent, expected a pool (required, unless state_writes is NONE)");
    }
  } else if (step) {
    c.absent("state.final", s.final, "state_writes is NONE");
    c.absent("state.write_slots", s.write_slots, "state_writes is NONE");
  }
  check_slots(c, "state.read_slots", s.read_slots, p->rows.N, step, 1);
  check_slots(c, "state.write_slots", s.write_slots, p->rows.N, step,
              per_token ? p->rows.max_tokens : 1);
  if (per_token && c.ok() && s.write_slots.rank != 2) {
    c.fail("state.write_slots rank = %d, expected 2 ([N, >= tokens] with state_writes PER_TOKEN)",
           present(s.write_slots) ? s.write_slots.rank : 0);
  }
  check_pool(c, "state.initial", s.initial, *p, present(s.read_slots) ? 0 : p->rows.N);
  const bool write_slots = present(s.write_slots) || present(s.read_slots);
  check_pool(c, "state.final", s.final, *p, write_slots ? 0 : p->rows.N);
  check_flags(c, "state.has_initial_state", s.has_initial_state, p->rows.N);
  check_alias(c, "state.initial", s.initial, "state.final", s.final);
  if (!present(s.write_slots)) s.write_slots = s.read_slots;
}

void check_num_accepted(Checker& c, const DeltaRuleProblem& p) noexcept {
  if (!c.optional("num_accepted", p.num_accepted, 1, Dtypes::kIndex)) return;
  c.dimension("num_accepted", p.num_accepted, 0, p.rows.N, "N sequences");
  if (c.ok() && (!present(p.state.read_slots) || p.state.read_slots.rank != 2)) {
    c.fail("state.read_slots rank = %d, expected 2 ([N, W] with num_accepted)",
           present(p.state.read_slots) ? p.state.read_slots.rank : 0);
  }
}

void check_conv_state_io(Checker& c, const ConvStateNames& names, CausalConvProblem* p) noexcept {
  if (!c.ok()) return;
  sluice_conv_state_io& s = p->state;
  const int64_t D = p->G * p->C;
  c.choice("state.form", s.form, 2, "0 (SHIFT) or 1 (RING)");
  c.reserved(s.reserved);
  if (c.ok() && s.pad_below < 0) {
    c.fail("state.pad_below = %lld, expected >= 0", static_cast<ll>(s.pad_below));
  }
  check_slots(c, "state.read_slots", s.read_slots, p->rows.N, false, 1);
  check_slots(c, "state.write_slots", s.write_slots, p->rows.N, false, 1);
  if (!present(s.write_slots)) s.write_slots = s.read_slots;
  check_flags(c, "state.has_initial_state", s.has_initial_state, p->rows.N);
  const struct {
    const char* name;
    const Tensor& pool;
    const Tensor& slots;
  } pools[2] = {{names.initial, s.initial, s.read_slots}, {names.final, s.final, s.write_slots}};
  for (const auto& [name, pool, slots] : pools) {
    if (!c.optional(name, pool, 3, Dtypes::kFloat)) continue;
    c.dimension(name, pool, 1, D, "D channels");
    c.dimension_at_least(name, pool, 2, p->W - 1, "columns, at least W - 1");
    c.dimension_at_least(name, pool, 0, present(slots) ? 0 : p->rows.N,
                         "slots for N sequences without slot indices");
    p->L = pool.shape[2];
  }
  if (present(s.final)) c.writable(names.final, s.final);
  if (c.ok() && present(s.initial) && present(s.final)) {
    c.dimension(names.final, s.final, 2, s.initial.shape[2], "columns of the initial state");
  }
  check_alias(c, names.initial, s.initial, names.final, s.final);
  if (c.optional(names.num_accepted, s.num_accepted, 1, Dtypes::kIndex)) {
    c.dimension(names.num_accepted, s.num_accepted, 0, p->rows.N, "N sequences");
    if (c.ok() && s.form == SLUICE_CONV_STATE_RING) {
      c.fail("%s = given, expected absent (a ring is rolled back by its position)",
             names.num_accepted);
    }
    // Packed rows outside a step operator have no host bound; their lengths are checked as
    // contents.
    const bool bounded = !present(p->rows.cu_seqlens) || p->rows.max_tokens < p->rows.T;
    if (bounded) check_window(c, *p, p->rows.max_tokens);
  }
  if (s.form == SLUICE_CONV_STATE_RING) {
    if (c.required(names.ring_position, s.ring_position, 1, Dtypes::kIndex)) {
      c.dimension(names.ring_position, s.ring_position, 0, p->rows.N, "N sequences");
    }
  } else {
    c.absent(names.ring_position, s.ring_position, "SHIFT form");
  }
}

void check_row_contents(Checker& c, const Rows& rows) noexcept {
  if (!c.ok() || !present(rows.cu_seqlens)) return;
  int64_t previous = 0;
  for (int64_t n = 0; n <= rows.N; ++n) {
    const int64_t offset = load_index(address(rows.cu_seqlens, n), rows.cu_seqlens.dtype);
    const bool past = (offset > rows.T);
    if ((n == 0 && offset != 0) || offset < previous || past) {
      c.fail("cu_seqlens[%lld] = %lld, expected %s%lld (ascending from 0, at most T = %lld)",
             static_cast<ll>(n), static_cast<ll>(offset), n == 0 ? "" : (past ? "<= " : ">= "),
             static_cast<ll>(n > 0 && past ? rows.T : previous), static_cast<ll>(rows.T));
      return;
    }
    if (n > 0 && offset - previous > rows.max_tokens) {
      c.fail("cu_seqlens[%lld] - cu_seqlens[%lld] = %lld, expected <= %lld (max_tokens)",
             static_cast<ll>(n), static_cast<ll>(n - 1), static_cast<ll>(offset - previous),
             static_cast<ll>(rows.max_tokens));
      return;
    }
    previous = offset;
  }
}

void check_slot_contents(Checker& c, const char* name, const Tensor& slots, int64_t pad_below,
                         const Tensor& pool) noexcept {
  if (!c.ok() || !present(slots) || !present(pool)) return;
  const int64_t columns = slots.rank == 2 ? slots.shape[1] : 1;
  for (int64_t n = 0; n < slots.shape[0]; ++n) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t slot = slot_at(slots, n, column);
      if (slot >= pad_below && slot >= pool.shape[0]) {
        c.fail("%s[%lld,%lld] = %lld, expected < %lld (slots of the pool)", name,
               static_cast<ll>(n), static_cast<ll>(column), static_cast<ll>(slot),
               static_cast<ll>(pool.shape[0]));
        return;
      }
    }
  }
}

void check_unique_slots(Checker& c, const Tensor& written, const Tensor& read,
                        int64_t pad_below) noexcept {
  const auto slot_of = [&](int64_t n) {
    const bool padded = present(read) && slot_at(read, n, 0) < pad_below;
    return padded ? pad_below - 1 : slot_at(written, n, 0);
  };
  for (int64_t i = 0; i < written.shape[0]; ++i) {
    const int64_t slot = slot_of(i);
    for (int64_t j = 0; j < i && slot >= pad_below; ++j) {
      if (slot_of(j) != slot) continue;
      c.fail(
          "state.write_slots[%lld] = %lld, expected a slot that no other sequence writes "
          "(SLUICE_DEBUG check; sequence %lld does)",
          static_cast<ll>(i), static_cast<ll>(slot), static_cast<ll>(j));
      return;
    }
  }
}

void check_delta_contents(Checker& c, const DeltaRuleProblem& p, Depth depth) noexcept {
  check_row_contents(c, p.rows);
  check_slot_contents(c, "state.read_slots", p.state.read_slots, p.state.pad_below,
                      p.state.initial);
  check_slot_contents(c, "state.write_slots", p.state.write_slots, p.state.pad_below,
                      p.state.final);
  check_slot_contents(c, "checkpoint_slots", p.checkpoint_slots, p.state.pad_below, p.checkpoints);
  check_ring_contents(c, p);
  check_unique_writes(c, p.state);
  if (c.ok() && depth == Depth::kContents && debug_checks()) check_values(c, p);
}

void check_conv_contents(Checker& c, const ConvStateNames& names,
                         const CausalConvProblem& p) noexcept {
  check_row_contents(c, p.rows);
  check_slot_contents(c, "state.read_slots", p.state.read_slots, p.state.pad_below,
                      p.state.initial);
  check_slot_contents(c, "state.write_slots", p.state.write_slots, p.state.pad_below,
                      p.state.final);
  check_unique_writes(c, p.state);
  for (int64_t n = 0; n < p.rows.N && c.ok() && present(p.state.num_accepted); ++n) {
    check_window(c, p, token_range(p.rows, n).size());
  }
  if (!c.ok() || p.state.form != SLUICE_CONV_STATE_RING) return;
  for (int64_t n = 0; n < p.rows.N; ++n) {
    const int64_t position = slot_at(p.state.ring_position, n, 0);
    // WHY a bound far from overflow: positions of the call's tokens are counted on from it.
    if (position < 0 || position > kMostPosition) {
      c.fail("%s[%lld] = %lld, expected %s", names.ring_position, static_cast<ll>(n),
             static_cast<ll>(position), position < 0 ? ">= 0" : "at most 2^62");
      return;
    }
  }
}

}  // namespace sluice::core
