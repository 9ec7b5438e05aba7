// Validates the replay buffer of recurrent_step: shapes, what it excludes, positions in host
// memory.
// SPDX-License-Identifier: Apache-2.0
#include <climits>

#include "core/host_access.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;

/// Most entries of a ring.
constexpr int64_t kMostEntries = 16;

/// One array [slots, L, heads (, D)] whose slots are those of the pool, each contiguous.
void check_entries(Checker& c, const char* name, const Tensor& t, const DeltaRuleProblem& p,
                   int64_t L, int64_t heads, const char* heads_name) noexcept {
  c.dimension(name, t, 0, p.state.initial.shape[0], "slots of state.initial");
  c.dimension(name, t, 1, L, "L of ring.k");
  c.dimension(name, t, 2, heads, heads_name);
  check_slot_memory(c, name, t);
}

/// What has no meaning beside a ring.
void check_company(Checker& c, const DeltaRuleProblem& p) noexcept {
  if (p.state_writes != SLUICE_STATE_WRITE_LAST) {
    c.fail("state_writes = %d, expected 0 (LAST, with a replay ring)",
           static_cast<int>(p.state_writes));
  }
  c.absent("num_accepted", p.num_accepted, "a replay ring is rolled back by its position");
  if (c.ok() && present(p.key_gate)) {
    c.fail("gate rank = %d, expected 3 (a replay ring has one decay an entry)", p.key_gate.rank);
  }
  const sluice_state_io& s = p.state;
  if (c.ok() && s.final.data != s.initial.data) {
    c.fail("state.final = other memory, expected absent (a replay ring works in place)");
  }
  if (c.ok() && present(s.read_slots) && s.read_slots.rank != 1) {
    c.fail("state.read_slots rank = %d, expected 1 (with a replay ring)", s.read_slots.rank);
  }
}

void check_cursor(Checker& c, const char* name, const Tensor& t, int64_t N) noexcept {
  if (c.required(name, t, 1, Dtypes::kIndex)) c.dimension(name, t, 0, N, "N sequences");
}

void check_sizes(Checker& c, const sluice_replay_ring& ring, const DeltaRuleProblem& p) noexcept {
  if (!c.required("ring.k", ring.k, 4, Dtypes::kFloat) ||
      !c.required("ring.delta", ring.delta, 4, Dtypes::kFloat) ||
      !c.required("ring.decay", ring.decay, 3, Dtypes::kFloat)) {
    return;
  }
  const int64_t L = ring.k.shape[1], tokens = p.rows.max_tokens;
  if (2 * tokens > kMostEntries) {
    c.fail(
        "ring.k = given, expected absent (%lld tokens a call, twice of which are more than %lld "
        "entries)",
        static_cast<ll>(tokens), static_cast<ll>(kMostEntries));
    return;
  }
  if (L < 2 || L > kMostEntries || L < 2 * tokens) {
    c.fail(
        "ring.k.shape[1] = %lld, expected %lld to %lld entries (twice the most tokens of a call)",
        static_cast<ll>(L), static_cast<ll>(tokens > 1 ? 2 * tokens : 2),
        static_cast<ll>(kMostEntries));
  }
  check_entries(c, "ring.k", ring.k, p, L, p.H, "H key heads");
  c.dimension("ring.k", ring.k, 3, p.K, "K of q");
  check_entries(c, "ring.delta", ring.delta, p, L, p.HV, "HV value heads");
  c.dimension("ring.delta", ring.delta, 3, p.V, "V of v");
  check_entries(c, "ring.decay", ring.decay, p, L, p.HV, "HV value heads");
  if (c.ok() && !same(ring.decay.dtype, kFloat32)) {
    c.fail("ring.decay dtype = %s, expected float32", type_name(ring.decay.dtype).text);
  }
}

void check_absent(Checker& c, const sluice_replay_ring& ring) noexcept {
  constexpr const char* kRule = "only with ring.k";
  c.absent("ring.delta", ring.delta, kRule);
  c.absent("ring.decay", ring.decay, kRule);
  c.absent("ring.position", ring.position, kRule);
  c.absent("ring.checkpoint", ring.checkpoint, kRule);
  c.absent("ring.next_checkpoint", ring.next_checkpoint, kRule);
  if (c.ok() && ring.fold != 0) c.fail("ring.fold = %d, expected 0 (%s)", ring.fold, kRule);
}

}  // namespace

void check_ring(Checker& c, const sluice_replay_ring& ring, const Tensor& write_slots,
                DeltaRuleProblem* p) noexcept {
  c.reserved(ring.reserved);
  if (!present(ring.k)) return check_absent(c, ring);
  c.choice("ring.fold", ring.fold, 2, "0 (AUTO) or 1 (ALWAYS)");
  if (c.ok()) check_company(c, *p);
  c.absent("state.write_slots", write_slots, "a replay ring works in place");
  if (c.ok()) check_sizes(c, ring, *p);
  check_cursor(c, "ring.position", ring.position, p->rows.N);
  check_cursor(c, "ring.checkpoint", ring.checkpoint, p->rows.N);
  if (c.optional("ring.next_checkpoint", ring.next_checkpoint, 1, Dtypes::kIndex)) {
    c.dimension("ring.next_checkpoint", ring.next_checkpoint, 0, p->rows.N, "N sequences");
    c.writable("ring.next_checkpoint", ring.next_checkpoint);
    c.distinct("ring.next_checkpoint", ring.next_checkpoint, "ring.checkpoint", ring.checkpoint);
    c.distinct("ring.next_checkpoint", ring.next_checkpoint, "ring.position", ring.position);
  }
  p->ring = ring;
}

void check_ring_contents(Checker& c, const DeltaRuleProblem& p) noexcept {
  if (!c.ok() || !present(p.ring.k)) return;
  const int64_t most = p.ring.k.shape[1] - p.rows.max_tokens;
  for (int64_t n = 0; n < p.rows.N; ++n) {
    if (plan_slots(p.state, p.num_accepted, n).padded) continue;
    const int64_t position = slot_at(p.ring.position, n, 0);
    const int64_t checkpoint = slot_at(p.ring.checkpoint, n, 0);
    if (position < 0 || position > INT32_MAX) {
      c.fail("ring.position[%lld] = %lld, expected 0 to 2^31 - 1", static_cast<ll>(n),
             static_cast<ll>(position));
    } else if (checkpoint < 0 || checkpoint > position || position - checkpoint > most) {
      c.fail("ring.checkpoint[%lld] = %lld, expected %lld to %lld (position %lld, L - tokens %lld)",
             static_cast<ll>(n), static_cast<ll>(checkpoint),
             static_cast<ll>(position > most ? position - most : 0), static_cast<ll>(position),
             static_cast<ll>(position), static_cast<ll>(most));
    }
    if (!c.ok()) return;
  }
}

}  // namespace sluice::core
