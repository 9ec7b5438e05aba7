// Validates state_fold: the maps of pieces, which chunk_summary writes, the route of each chain, and
// states.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/host_access.hpp"
#include "core/validate.hpp"

namespace sluice::core {
namespace {

using ll = long long;
using Args = sluice_state_fold_args;

/// transition and addend: what gives P, HV, K and V.
void check_maps(Checker& c, const Args& a, StateFoldProblem* p) noexcept {
  if (!c.required("transition", a.transition, 4, Dtypes::kFloat) ||
      !c.required("addend", a.addend, 4, Dtypes::kFloat)) {
    return;
  }
  p->P = a.addend.shape[0], p->HV = a.addend.shape[1];
  p->K = a.addend.shape[2], p->V = a.addend.shape[3];
  for (int axis = 1; axis < 4; ++axis) {
    c.dimension_at_least("addend", a.addend, axis, 1, "HV, K and V");
  }
  DeltaRuleProblem maps;
  maps.rows.N = p->P, maps.HV = p->HV, maps.K = p->K;
  check_map(c, "addend", a.addend, p->V, maps);
  check_map(c, "transition", a.transition, p->K, maps);
  // A view without elements needs no memory, and check_map() takes it for absent: that it has none
  // must be because there is no piece.
  if (!present(a.transition)) {
    const int64_t shape[] = {p->P, p->HV, p->K, p->K};
    for (int axis = 0; axis < 4; ++axis) {
      c.dimension("transition", a.transition, axis, shape[axis],
                  axis == 0 ? "pieces" : "HV, K and K");
    }
  }
  if (c.optional("forgotten", a.forgotten, 2, Dtypes::kFlag)) {
    c.dimension("forgotten", a.forgotten, 0, p->P, "P pieces");
    c.dimension("forgotten", a.forgotten, 1, p->HV, "HV value heads");
  }
  p->transition = a.transition, p->addend = a.addend, p->forgotten = a.forgotten;
}

void check_route(Checker& c, const Args& a, StateFoldProblem* p) noexcept {
  if (!c.required("cu_chains", a.cu_chains, 1, Dtypes::kIndex) ||
      !c.required("route_pieces", a.route_pieces, 1, Dtypes::kIndex) ||
      !c.required("route_states", a.route_states, 1, Dtypes::kIndex)) {
    return;
  }
  c.dimension_at_least("cu_chains", a.cu_chains, 0, 1, "N + 1 offsets");
  p->S = a.route_pieces.shape[0];
  c.dimension("route_states", a.route_states, 0, p->S, "S steps of route_pieces");
  if (c.ok() && std::max(a.cu_chains.shape[0] - 1, p->S) > kMostSequences) {
    c.unsupported("cu_chains.shape[0], route_pieces.shape[0] = %lld, %lld, expected at most 2^31",
                  static_cast<ll>(a.cu_chains.shape[0]), static_cast<ll>(p->S));
  }
  p->N = a.cu_chains.shape[0] - 1;
  p->cu_chains = a.cu_chains;
  p->route_pieces = a.route_pieces, p->route_states = a.route_states;
}

void check_states(Checker& c, const Args& a, StateFoldProblem* p) noexcept {
  c.choice("state_layout", a.state_layout, 2, "0 (KV) or 1 (VK)");
  if (!c.ok()) return;
  p->layout = static_cast<sluice_state_layout>(a.state_layout);
  DeltaRuleProblem states;
  states.HV = p->HV, states.K = p->K, states.V = p->V;
  states.state.layout = a.state_layout;
  check_pool(c, "initial", a.initial, states, 0);
  check_pool(c, "entering", a.entering, states, 0);
  check_pool(c, "final", a.final, states, 0);
  if (present(a.initial)) c.dimension("initial", a.initial, 0, p->N, "N chains");
  if (present(a.final)) c.dimension("final", a.final, 0, p->N, "N chains");
  p->E = present(a.entering) ? a.entering.shape[0] : 0;
  p->initial = a.initial, p->entering = a.entering, p->final = a.final;
}

/// Offsets ascend, pieces exist, and no state is past the last.
void check_route_contents(Checker& c, const StateFoldProblem& p) noexcept {
  int64_t previous = 0;
  for (int64_t n = 0; n <= p.N && c.ok(); ++n) {
    const int64_t offset = slot_at(p.cu_chains, n, 0);
    if (offset < previous || offset > p.S || (n == 0 && offset != 0)) {
      c.fail("cu_chains[%lld] = %lld, expected %lld to %lld (ascending from 0, at most S)",
             static_cast<ll>(n), static_cast<ll>(offset), static_cast<ll>(previous),
             static_cast<ll>(n == 0 ? 0 : p.S));
    }
    previous = offset;
  }
  for (int64_t step = 0; step < p.S && c.ok(); ++step) {
    const int64_t piece = slot_at(p.route_pieces, step, 0);
    const int64_t to = slot_at(p.route_states, step, 0);
    if (piece >= p.P) {
      c.fail("route_pieces[%lld] = %lld, expected < %lld (P pieces)", static_cast<ll>(step),
             static_cast<ll>(piece), static_cast<ll>(p.P));
    } else if (to >= p.E && present(p.entering)) {
      c.fail("route_states[%lld] = %lld, expected < %lld (states of entering)",
             static_cast<ll>(step), static_cast<ll>(to), static_cast<ll>(p.E));
    }
  }
}

}  // namespace

void check_map(Checker& c, const char* name, const Tensor& t, int64_t columns,
               const DeltaRuleProblem& p) noexcept {
  DeltaRuleProblem map;
  map.HV = p.HV, map.K = p.K, map.V = columns;
  check_pool(c, name, t, map, 0);
  if (!c.ok() || !present(t)) return;
  c.dimension(name, t, 0, p.rows.N, "pieces");
  if (!same(t.dtype, kFloat32)) {
    c.fail("%s dtype = {code %d, bits %d}, expected float32", name, t.dtype.code, t.dtype.bits);
  }
}

void check(Checker& c, const Args& args, Depth depth, StateFoldProblem* problem) noexcept {
  c.choice("direction", args.direction, 2, "0 (FORWARD) or 1 (REVERSE)");
  if (c.ok()) problem->direction = static_cast<sluice_direction>(args.direction);
  check_maps(c, args, problem);
  if (c.ok()) check_route(c, args, problem);
  if (c.ok()) check_states(c, args, problem);
  if (c.ok()) {
    Rows rows;
    rows.B = 1, rows.T = problem->P + problem->N + problem->E, rows.N = problem->S;
    check_work(c, rows, problem->HV, std::max(problem->K, problem->V));
  }
  c.reserved(args.reserved);
  if (c.ok() && sees_contents(depth, c.device())) check_route_contents(c, *problem);
}

}  // namespace sluice::core
