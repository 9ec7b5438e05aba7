// Runs each stage of the chunk form over sequences, chunks and heads.
// SPDX-License-Identifier: Apache-2.0
#include "ref/operators.hpp"

#include <algorithm>

#include "ref/access.hpp"
#include "ref/forms.hpp"
#include "ref/gates.hpp"

namespace sluice::ref {
namespace {

using core::ChunkStageProblem;
using core::TokenRange;

/// One chunk of one sequence: its tokens, and its place in h.
struct Chunk {
  TokenRange tokens;
  int64_t h_row, h_entry;
};

/// The matrices of one chunk and value head.
struct Scratch {
  Scratch(const ChunkStageProblem& p, Arena& arena) noexcept
      : g(arena.matrix(p.C, p.key_gates ? p.K : 1)),
        G(arena.matrix(p.C, p.key_gates ? p.K : 1)),
        beta(arena.vector(p.C)),
        inverse(arena.matrix(p.C, p.C)),
        A(arena.matrix(p.C, p.C)),
        Tmat(arena.matrix(p.C, p.C)),
        q(arena.matrix(p.C, p.K)),
        k(arena.matrix(p.C, p.K)),
        w(arena.matrix(p.C, p.K)),
        values(arena.matrix(p.C, p.V)),
        v_new(arena.matrix(p.C, p.V)),
        out(arena.matrix(p.C, p.V)),
        S(arena.matrix(p.K, p.V)) {}

  Matrix g, G;  ///< [C, 1], with key-wise gates [C, K]
  Vector beta;
  Matrix inverse, A, Tmat;    ///< [C, C]
  Matrix q, k, w;             ///< [C, K]
  Matrix values, v_new, out;  ///< [C, V]
  Matrix S;                   ///< [K, V]
};

/// Rows of a view that may have no inner dimension as rows of one element.
Tensor with_channels(Tensor t) noexcept {
  if (t.rank == 3) t.rank = 4, t.shape[3] = 1, t.stride[3] = 0;
  return t;
}

/// The stage for one value head.
class HeadStage {
 public:
  HeadStage(const ChunkStageProblem& problem, Scratch& scratch, int64_t h) noexcept
      : p_(problem),
        gates_(problem.gates()),
        sums_(with_channels(problem.g_cumsum)),
        s_(scratch),
        h_(h) {}

  /// One chunk; in chunk_h, and chunk_o without h, of the state that the chunk before it left.
  void advance(const Chunk& chunk) noexcept {
    const int64_t n = chunk.tokens.size();
    switch (p_.stage) {
      case SLUICE_STAGE_CHUNK_CUMSUM:
        return cumsum(chunk, n);
      case SLUICE_STAGE_SCALED_DOT_KKT:
        return kkt(chunk, n);
      case SLUICE_STAGE_SOLVE_TRIL:
        return solve(chunk, n);
      case SLUICE_STAGE_WY_FAST:
        return wy(chunk, n);
      case SLUICE_STAGE_CHUNK_H:
        return states(chunk, n);
      case SLUICE_STAGE_CHUNK_O:
        return outputs(chunk, n);
      case SLUICE_STAGE_CUMSUM_KKT:
        return cumsum_kkt(chunk, n);
      case SLUICE_STAGE_SOLVE_WY:
        return solve_wy(chunk, n);
    }
  }

  void start_from(int64_t slot) noexcept {
    load_state(p_.state.initial, p_.state.layout, slot, h_, s_.S);
  }

  void finish_to(int64_t slot) noexcept {
    store_state(p_.state.final, p_.state.layout, slot, h_, s_.S);
  }

  /// What a padded sequence has for outputs.
  void zero(const Chunk& chunk) noexcept {
    for (const Tensor* rows : {&p_.o, &p_.v_new}) {
      if (core::present(*rows)) store_rows(*rows, chunk, [](int64_t, int64_t) { return 0.0; });
    }
    if (core::present(p_.h)) {
      start_from(-1);
      store_state(states_of(chunk), p_.state.layout, chunk.h_entry, h_, s_.S);
    }
  }

 private:
  // ------------------------------------------------------------------------------ stages ----

  void cumsum(const Chunk& chunk, int64_t n) noexcept {
    const bool reverse = p_.direction == SLUICE_DIRECTION_REVERSE;
    store_sums(chunk, n, [&](int64_t i) { return reverse ? n - 1 - i : i; });
  }

  void kkt(const Chunk& chunk, int64_t n) noexcept { products(chunk, sums(chunk, n)); }

  void cumsum_kkt(const Chunk& chunk, int64_t n) noexcept {
    products(chunk, store_sums(chunk, n, [](int64_t i) { return i; }));
  }

  /// An upper triangle is a lower one with rows and columns in reverse.
  void solve(const Chunk& chunk, int64_t n) noexcept {
    const bool upper = p_.triangle == SLUICE_TRIANGLE_UPPER;
    const auto place = [&](int64_t i) { return upper ? n - 1 - i : i; };
    const Matrix inverse = inverted(chunk, n, place), result = square(s_.inverse, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) result(place(i), place(j)) = j <= i ? inverse(i, j) : 0.0;
    }
    store_square(p_.A_inverse, chunk, result);
  }

  void wy(const Chunk& chunk, int64_t n) noexcept {
    const Matrix Tmat = square(s_.Tmat, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        Tmat(i, j) = load(p_.A_inverse, chunk.tokens.batch, chunk.tokens.begin + i, h_, j);
      }
    }
    updates(chunk, n, Tmat);
  }

  void solve_wy(const Chunk& chunk, int64_t n) noexcept {
    const Matrix inverse = inverted(chunk, n, [](int64_t i) { return i; });
    if (core::present(p_.A_inverse)) store_square(p_.A_inverse, chunk, inverse);
    updates(chunk, n, inverse);
  }

  void states(const Chunk& chunk, int64_t n) noexcept {
    if (core::present(p_.h)) {
      store_state(states_of(chunk), p_.state.layout, chunk.h_entry, h_, s_.S);
    }
    Matrix v_new = value_rows(chunk, n);
    if (core::present(p_.w)) {
      const Matrix u = v_new, w = s_.w.top(n);
      load_rows(p_.w, chunk, h_, w);
      v_new = s_.v_new.top(n);
      corrected_values(u, w, s_.S, v_new);
    }
    if (core::present(p_.v_new)) {
      store_rows(p_.v_new, chunk, [&](int64_t i, int64_t j) { return v_new(i, j); });
    }
    chunk_h(keys(p_.k, s_.k, chunk, n), v_new, sums(chunk, n), s_.S);
  }

  void outputs(const Chunk& chunk, int64_t n) noexcept {
    const bool given = core::present(p_.h);
    if (given) load_state(states_of(chunk), p_.state.layout, chunk.h_entry, h_, s_.S);
    const Matrix q = keys(p_.q, s_.q, chunk, n), k = keys(p_.k, s_.k, chunk, n);
    const Matrix v_new = value_rows(chunk, n), o = s_.out.top(n), G = sums(chunk, n);
    chunk_o(q, k, v_new, G, s_.S, p_.scale, o);
    if (!given) chunk_h(k, v_new, G, s_.S);
    store_rows(p_.o, chunk, [&](int64_t i, int64_t j) { return o(i, j); });
  }

  // ------------------------------------------------------------------------------- parts ----

  static Matrix square(Matrix buffer, int64_t n) noexcept { return {buffer.data, n, n}; }

  /// A from the sums G of the chunk's gates.
  void products(const Chunk& chunk, Matrix G) noexcept {
    const int64_t n = G.rows;
    const Matrix A = square(s_.A, n);
    scaled_dot_kkt(strengths(chunk, n), G, keys(p_.k, s_.k, chunk, n), A);
    store_square(p_.A, chunk, A);
  }

  /// (I + A)^-1 of the triangle whose row i is token place(i).
  template <class Place>
  Matrix inverted(const Chunk& chunk, int64_t n, const Place& place) noexcept {
    const Matrix A = square(s_.A, n), inverse = square(s_.Tmat, n);
    for (int64_t i = 0; i < n; ++i) {
      s_.beta[i] = 1.0;
      for (int64_t j = 0; j < i; ++j) {
        A(i, j) = load(p_.A, chunk.tokens.batch, chunk.tokens.begin + place(i), h_, place(j));
      }
    }
    solve_tril(A, {s_.beta.data, n}, inverse);
    return inverse;
  }

  /// u and w from the inverse, which becomes Tmat.
  void updates(const Chunk& chunk, int64_t n, Matrix Tmat) noexcept {
    const Matrix u = s_.out.top(n), w = s_.w.top(n);
    const Vector beta = strengths(chunk, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) Tmat(i, j) *= beta[j];
    }
    wy_values(Tmat, value_rows(chunk, n), u);
    wy_keys(Tmat, sums(chunk, n), keys(p_.k, s_.k, chunk, n), w);
    store_rows(p_.u, chunk, [&](int64_t i, int64_t j) { return u(i, j); });
    store_rows(p_.w, chunk, [&](int64_t i, int64_t j) { return w(i, j); });
  }

  Matrix sums(const Chunk& chunk, int64_t n) noexcept {
    if (!core::present(p_.g_cumsum)) return summed_gates(chunk, n, [](int64_t i) { return i; });
    load_rows(sums_, chunk, h_, s_.G.top(n));
    return s_.G.top(n);
  }

  /// Row place(i) is the sum of token i.
  template <class Place>
  Matrix summed_gates(const Chunk& chunk, int64_t n, const Place& place) noexcept {
    const Matrix g = s_.g.top(n), G = s_.G.top(n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t l = 0; l < g.cols; ++l) {
        g(place(i), l) = log_gate(gates_, chunk.tokens.batch, chunk.tokens.begin + i, h_, l);
      }
    }
    chunk_cumsum(g, G);
    return G;
  }
  template <class Place>
  Matrix store_sums(const Chunk& chunk, int64_t n, const Place& place) noexcept {
    const Matrix G = summed_gates(chunk, n, place);
    store_rows(sums_, chunk, [&](int64_t i, int64_t l) { return G(place(i), l); });
    return G;
  }

  Vector strengths(const Chunk& chunk, int64_t n) noexcept {
    for (int64_t i = 0; i < n; ++i) {
      s_.beta[i] = core::present(p_.beta)
                       ? load(p_.beta, chunk.tokens.batch, chunk.tokens.begin + i, h_)
                       : 1.0;
    }
    return {s_.beta.data, n};
  }

  static void load_rows(const Tensor& from, const Chunk& chunk, int64_t head, Matrix to) noexcept {
    for (int64_t i = 0; i < to.rows; ++i) {
      for (int64_t j = 0; j < to.cols; ++j) {
        to(i, j) = load(from, chunk.tokens.batch, chunk.tokens.begin + i, head, j);
      }
    }
  }
  Matrix keys(const Tensor& from, Matrix buffer, const Chunk& chunk, int64_t n) noexcept {
    const Matrix rows = buffer.top(n);
    load_rows(from, chunk, p_.key_head(h_), rows);
    return rows;
  }
  Matrix value_rows(const Chunk& chunk, int64_t n) noexcept {
    const Matrix rows = s_.values.top(n);
    load_rows(p_.values, chunk, h_, rows);
    return rows;
  }

  /// value(i, j) to every element of the chunk's rows.
  template <class Value>
  void store_rows(const Tensor& to, const Chunk& chunk, Value value) noexcept {
    for (int64_t i = 0; i < chunk.tokens.size(); ++i) {
      for (int64_t j = 0; j < to.shape[3]; ++j) {
        store(to, value(i, j), chunk.tokens.batch, chunk.tokens.begin + i, h_, j);
      }
    }
  }
  void store_square(const Tensor& to, const Chunk& chunk, Matrix from) noexcept {
    store_rows(to, chunk, [&](int64_t i, int64_t j) { return j < from.cols ? from(i, j) : 0.0; });
  }

  /// The chunks of h's row as slots of a pool.
  Tensor states_of(const Chunk& chunk) const noexcept {
    Tensor pool = p_.h;
    pool.data = core::address(p_.h, chunk.h_row);
    pool.rank = 4;
    std::copy_n(p_.h.shape + 1, 4, pool.shape);
    std::copy_n(p_.h.stride + 1, 4, pool.stride);
    return pool;
  }

  const ChunkStageProblem& p_;
  const core::DeltaRuleProblem gates_;
  const Tensor sums_;
  Scratch& s_;
  int64_t h_;
};

/// All chunks of sequence n for one value head; its first chunk is entry `first` of h.
void run_head(const ChunkStageProblem& p, int64_t n, int64_t first, int64_t h, Scratch& scratch) {
  const TokenRange range = core::token_range(p.rows, n);
  const core::SlotPlan plan = core::plan_slots(p.state, Tensor{}, n);
  HeadStage stage(p, scratch, h);
  stage.start_from(plan.read);
  for (int64_t c = 0; c < core::chunk_count(range.size(), p.C); ++c) {
    const int64_t begin = range.begin + c * p.C;
    const Chunk chunk{
        {range.batch, begin, std::min(begin + p.C, range.end)}, range.batch, first + c};
    if (plan.padded) {
      stage.zero(chunk);
    } else {
      stage.advance(chunk);
    }
  }
  if (plan.write >= 0) stage.finish_to(plan.write);
}

}  // namespace

size_t chunk_stage_workspace(const ChunkStageProblem& problem) noexcept {
  Arena counter(nullptr);
  const Scratch scratch(problem, counter);
  return counter.bytes();
}

void chunk_stage(const ChunkStageProblem& p, Arena arena) noexcept {
  Scratch scratch(p, arena);
  int64_t first = 0;
  for (int64_t n = 0; n < p.rows.N; ++n) {
    for (int64_t h = 0; h < p.HV; ++h) run_head(p, n, first, h, scratch);
    if (core::present(p.rows.cu_seqlens)) {
      first += core::chunk_count(core::token_range(p.rows, n).size(), p.C);
    }
  }
}

}  // namespace sluice::ref
