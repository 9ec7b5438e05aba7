// Validates chunk_stage: the views that each stage names are checked and collected; all others are
// not looked at.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/host_access.hpp"
#include "core/validate.hpp"
#include "core/validate_stage_gates.hpp"

namespace sluice::core {
namespace {

using ll = long long;
using Args = sluice_chunk_stage_args;

constexpr int64_t kDefaultChunk = 64;

bool chunk_size_exists(int64_t C) noexcept { return C == 16 || C == 32 || C == 64 || C == 128; }

/// The rules of one call. Each check_*() reads what it names and fills the problem's view.
class StageRules {
 public:
  StageRules(Checker& c, const Args& args, ChunkStageProblem* problem) noexcept
      : c_(c), a_(args), p_(*problem) {}

  void check() noexcept {
    c_.choice("rule", a_.rule, 2, "0 (GATED_DELTA) or 1 (LINEAR_ATTENTION)");
    c_.choice("head_map", a_.head_map, 2, "0 (BLOCK) or 1 (CYCLIC)");
    c_.choice("direction", a_.direction, 2, "0 (FORWARD) or 1 (REVERSE)");
    c_.choice("triangle", a_.triangle, 2, "0 (LOWER) or 1 (UPPER)");
    c_.choice("matrices", a_.matrices, 2, "0 (CHUNKS) or 1 (BATCHED)");
    if (!c_.ok()) return;
    p_.head_map = static_cast<sluice_head_map>(a_.head_map);
    p_.direction = static_cast<sluice_direction>(a_.direction);
    p_.triangle = static_cast<sluice_triangle>(a_.triangle);
    check_chunk_size();
    // In the order of sluice_stage.
    constexpr void (StageRules::* kStageRules[kStages])() noexcept = {
        &StageRules::chunk_cumsum, &StageRules::scaled_dot_kkt, &StageRules::solve_tril,
        &StageRules::wy_fast,      &StageRules::chunk_h,        &StageRules::chunk_o,
        &StageRules::cumsum_kkt,   &StageRules::solve_wy};
    (this->*kStageRules[p_.stage])();
    check_work(c_, p_.rows, p_.HV, std::max({p_.K, p_.V, p_.C}));
  }

  void check_contents() noexcept {
    check_row_contents(c_, p_.rows);
    check_slot_contents(c_, "state.read_slots", p_.state.read_slots, p_.state.pad_below,
                        p_.state.initial);
    check_slot_contents(c_, "state.write_slots", p_.state.write_slots, p_.state.pad_below,
                        p_.state.final);
    check_unique_writes(c_, p_.state);
    if (!c_.ok() || !present(p_.h) || !present(p_.rows.cu_seqlens)) return;
    int64_t chunks = 0;
    for (int64_t n = 0; n < p_.rows.N; ++n) {
      chunks += chunk_count(token_range(p_.rows, n).size(), p_.C);
    }
    c_.dimension_at_least("h", p_.h, 1, chunks, "chunks of all sequences");
  }

 private:
  // ------------------------------------------------------------------------------ stages ----

  void chunk_cumsum() noexcept {
    if (!check_gate_view(c_, "gate", a_.gate, true, &p_)) return;
    p_.HV = a_.gate.shape[2];
    c_.dimension_at_least("gate", a_.gate, 2, 1, "value heads HV");
    if (p_.key_gates) {
      p_.K = a_.gate.shape[3];
      c_.dimension_at_least("gate", a_.gate, 3, 1, "head dimension K");
    }
    rows("gate", a_.gate);
    p_.gate = a_.gate;
    check_any_gate_space(c_, a_, &p_);
    check_sums_written(c_, a_.g_cumsum, &p_);
    for (const Input& other : {Input{"A_log", &p_.A_log}, {"dt_bias", &p_.dt_bias}}) {
      if (present(*other.view)) c_.distinct("g_cumsum", p_.g_cumsum, other.name, *other.view);
    }
  }

  void scaled_dot_kkt() noexcept {
    key_products();
    sums();
    if (c_.ok()) apart_from_gates("A", p_.A);
  }

  /// The sums are an output, whatever reads them later.
  void cumsum_kkt() noexcept {
    key_products();
    if (!check_gate_view(c_, "gate", a_.gate, true, &p_)) return;
    check_per_token("gate", a_.gate);
    check_channels(c_, p_, "gate", a_.gate);
    p_.gate = a_.gate;
    logarithms();
    check_sums_written(c_, a_.g_cumsum, &p_);
    if (!c_.ok()) return;
    for (const Input& other : {Input{"k", &p_.k}, {"beta", &p_.beta}, {"A", &p_.A}}) {
      if (present(*other.view)) c_.distinct("g_cumsum", p_.g_cumsum, other.name, *other.view);
    }
    c_.distinct("A", p_.A, "gate", p_.gate);
  }

  void solve_tril() noexcept {
    if (a_.matrices == SLUICE_MATRICES_BATCHED) {
      batched("A", a_.A, &p_.A);
      batched("A_inverse", a_.A_inverse, &p_.A_inverse);
      c_.absent("cu_seqlens", a_.cu_seqlens, "matrices are BATCHED");
      if (!c_.ok()) return;
      p_.C = p_.A.shape[3];
      if (a_.chunk_size != 0 && a_.chunk_size != p_.C) {
        c_.fail("chunk_size = %d, expected 0 or n = %lld of A (matrices are BATCHED)",
                a_.chunk_size, static_cast<ll>(p_.C));
      }
    } else {
      if (!c_.required("A", a_.A, 4, Dtypes::kFloat)) return;
      if (!c_.required("A_inverse", a_.A_inverse, 4, Dtypes::kFloat)) return;
      p_.A = a_.A;
      p_.A_inverse = a_.A_inverse;
    }
    p_.HV = p_.A.shape[2];
    c_.dimension_at_least("A", p_.A, 2, 1, "value heads HV");
    rows("A", p_.A);
    matrix("A", p_.A, &p_.A);
    matrix("A_inverse", p_.A_inverse, &p_.A_inverse);
    output("A_inverse", p_.A_inverse, {{"A", &p_.A}});
  }

  void wy_fast() noexcept { updates("A_inverse", a_.A_inverse, &p_.A_inverse); }

  void solve_wy() noexcept {
    updates("A", a_.A, &p_.A);
    if (!c_.ok() || !present(a_.A_inverse)) return;
    matrix("A_inverse", a_.A_inverse, &p_.A_inverse);
    output("A_inverse", p_.A_inverse,
           {{"k", &p_.k}, {"v", &p_.values}, {"A", &p_.A}, {"u", &p_.u}, {"w", &p_.w}});
  }

  void chunk_h() noexcept {
    const bool delta = a_.rule == SLUICE_RULE_GATED_DELTA;
    keys();
    values(delta ? "u" : "v", delta ? a_.u : a_.v, !delta);
    sums();
    if (delta) {
      like_keys("w", a_.w, &p_.w);
      if (c_.ok() && present(a_.v_new)) like_values("v_new", a_.v_new, &p_.v_new);
      if (present(p_.v_new)) {
        output("v_new", p_.v_new, {{"k", &p_.k}, {"u", &p_.values}, {"w", &p_.w}});
      }
    }
    states();
    chunk_states();
    if (present(p_.h)) {
      output("h", p_.h,
             {{"k", &p_.k},
              {delta ? "u" : "v", &p_.values},
              {"w", &p_.w},
              {"v_new", &p_.v_new},
              {"state.initial", &p_.state.initial},
              {"state.final", &p_.state.final}});
    }
  }

  void chunk_o() noexcept {
    const bool delta = a_.rule == SLUICE_RULE_GATED_DELTA;
    const char* const name = delta ? "v_new" : "v";
    if (!c_.required("q", a_.q, 4, Dtypes::kFloat)) return;
    keys();
    c_.same_shape("q", a_.q, a_.k, 4, "shape of k");
    c_.same_dtype("q", a_.q, "k", a_.k);
    c_.inner_contiguous("q", a_.q);
    p_.q = a_.q;
    values(name, delta ? a_.v_new : a_.v, !delta);
    sums();
    p_.scale = check_scale(c_, a_.scale_mode, a_.scale, p_.K);
    like_values("o", a_.o, &p_.o);
    if (c_.ok() && !present(a_.h)) states();
    chunk_states();
    output("o", p_.o, {{"q", &p_.q}, {"k", &p_.k}, {name, &p_.values}, {"h", &p_.h}});
  }

  // ------------------------------------------------------------------------------- parts ----

  /// k and beta, and A as an output.
  void key_products() noexcept {
    keys();
    if (!c_.required("A", a_.A, 4, Dtypes::kFloat)) return;
    value_heads("A", a_.A);
    write_strengths();
    matrix("A", a_.A, &p_.A);
    output("A", a_.A, {{"k", &p_.k}, {"beta", &p_.beta}});
  }

  /// u and w, which come from k, v, beta, gates and the matrix `name`.
  void updates(const char* name, const Tensor& given, Tensor* into) noexcept {
    keys();
    values("v", a_.v, true);
    write_strengths();
    sums();
    if (!c_.required(name, given, 4, Dtypes::kFloat)) return;
    matrix(name, given, into);
    like_values("u", a_.u, &p_.u);
    like_keys("w", a_.w, &p_.w);
    output("u", p_.u, {{"k", &p_.k}, {"v", &p_.values}, {name, into}});
    output("w", p_.w, {{"k", &p_.k}, {"v", &p_.values}, {name, into}, {"u", &p_.u}});
  }

  /// G as an input, from log gates where no sums are given.
  void sums() noexcept {
    check_sums_read(c_, a_.gate, a_.g_cumsum, &p_);
    if (present(p_.gate)) logarithms();
  }
  void logarithms() noexcept {
    if (c_.ok() && a_.gate_space != SLUICE_GATE_LOG) {
      c_.fail("gate_space = %d, expected 0 (LOG; chunk_cumsum makes sums of the others)",
              a_.gate_space);
    }
  }

  void check_chunk_size() noexcept {
    p_.C = a_.chunk_size == 0 ? kDefaultChunk : a_.chunk_size;
    if (!chunk_size_exists(p_.C)) {
      c_.fail("chunk_size = %d, expected 16, 32, 64 or 128 (0 = %lld)", a_.chunk_size,
              static_cast<ll>(kDefaultChunk));
    }
  }

  void rows(const char* name, const Tensor& t) noexcept {
    check_rows(c_, name, t, a_.cu_seqlens, false, 0, &p_.rows);
  }

  void keys() noexcept {
    if (!c_.required("k", a_.k, 4, Dtypes::kFloat)) return;
    p_.H = a_.k.shape[2];
    p_.K = a_.k.shape[3];
    c_.dimension_at_least("k", a_.k, 2, 1, "key heads H");
    c_.dimension_at_least("k", a_.k, 3, 1, "head dimension K");
    c_.inner_contiguous("k", a_.k);
    rows("k", a_.k);
    p_.k = a_.k;
  }

  /// HV from axis 2 of a view of token rows.
  void value_heads(const char* name, const Tensor& t) noexcept {
    p_.HV = t.shape[2];
    c_.dimension_at_least(name, t, 2, 1, "value heads HV");
    c_.dimension(name, t, 0, p_.rows.B, "B of k");
    c_.dimension(name, t, 1, p_.rows.T, "T of k");
    p_.r = check_grouped(c_, name, p_.HV, p_.H);
  }

  /// The values [B,T,HV,V] that the stage reads.
  void values(const char* name, const Tensor& t, bool caller_values) noexcept {
    if (!c_.required(name, t, 4, Dtypes::kFloat)) return;
    value_heads(name, t);
    p_.V = t.shape[3];
    c_.dimension_at_least(name, t, 3, 1, "head dimension V");
    if (caller_values) c_.same_dtype(name, t, "k", a_.k);
    c_.inner_contiguous(name, t);
    p_.values = t;
  }

  /// A view [B,T,HV,columns].
  void token_rows(const char* name, const Tensor& t, int64_t columns, const char* what,
                  Tensor* into) noexcept {
    if (!c_.required(name, t, 4, Dtypes::kFloat)) return;
    check_per_token(name, t);
    c_.dimension(name, t, 3, columns, what);
    c_.inner_contiguous(name, t);
    *into = t;
  }
  void like_values(const char* name, const Tensor& t, Tensor* into) noexcept {
    token_rows(name, t, p_.V, "head dimension V", into);
  }
  void like_keys(const char* name, const Tensor& t, Tensor* into) noexcept {
    token_rows(name, t, p_.K, "head dimension K", into);
  }
  void matrix(const char* name, const Tensor& t, Tensor* into) noexcept {
    token_rows(name, t, p_.C, "tokens of a chunk", into);
  }

  void check_per_token(const char* name, const Tensor& t) noexcept {
    check_token_axes(c_, p_, name, t, 3);
  }

  void write_strengths() noexcept {
    if (c_.optional("beta", a_.beta, 3, Dtypes::kFloat)) check_per_token("beta", a_.beta);
    p_.beta = a_.beta;
  }

  /// [.., n, n] of rank 2 to 4 as [B', n, HV', n].
  void batched(const char* name, const Tensor& t, Tensor* into) noexcept {
    const int rank = t.rank < 2 || t.rank > 4 ? 4 : t.rank;
    if (!c_.required(name, t, rank, Dtypes::kFloat)) return;
    const int64_t n = t.shape[rank - 1];
    c_.dimension(name, t, rank - 2, n, "square matrices");
    if (c_.ok() && !chunk_size_exists(n)) {
      c_.fail("%s.shape[%d] = %lld, expected 16, 32, 64 or 128", name, rank - 1,
              static_cast<ll>(n));
    }
    *into = rows_of_matrices(t);
  }

  void states() noexcept {
    if (!c_.ok()) return;
    DeltaRuleProblem delta;
    delta.rows = p_.rows;
    delta.HV = p_.HV, delta.K = p_.K, delta.V = p_.V;
    delta.state = a_.state;
    check_state_io(c_, &delta);
    p_.state = delta.state;
  }

  /// h: room for all chunks, whole matrices in one piece.
  void chunk_states() noexcept {
    if (!c_.ok() || !present(a_.h)) return;
    c_.choice("state.layout", a_.state.layout, 2, "0 (KV) or 1 (VK)");
    if (!c_.optional("h", a_.h, 5, Dtypes::kFloat)) return;
    const bool kv = a_.state.layout == SLUICE_STATE_KV;
    const bool packed = present(p_.rows.cu_seqlens);
    c_.dimension("h", a_.h, 0, p_.rows.B, "batch entries B");
    c_.dimension_at_least("h", a_.h, 1, packed ? 0 : chunk_count(p_.rows.T, p_.C),
                          "chunks of a sequence");
    c_.dimension("h", a_.h, 2, p_.HV, "value heads HV");
    c_.dimension("h", a_.h, 3, kv ? p_.K : p_.V, kv ? "K, layout KV" : "V, layout VK");
    c_.dimension("h", a_.h, 4, kv ? p_.V : p_.K, kv ? "V, layout KV" : "K, layout VK");
    c_.inner_contiguous("h", a_.h);
    if (c_.ok() && a_.h.shape[3] > 1 && a_.h.stride[3] != a_.h.shape[4]) {
      c_.fail("h.stride[3] = %lld, expected %lld (matrices in one piece)",
              static_cast<ll>(a_.h.stride[3]), static_cast<ll>(a_.h.shape[4]));
    }
    p_.h = a_.h;
    p_.state.layout = a_.state.layout;
  }

  struct Input {
    const char* name;
    const Tensor* view;
  };
  void output(const char* name, const Tensor& t, std::initializer_list<Input> inputs) noexcept {
    c_.writable(name, t);
    for (const Input& input : inputs) {
      if (present(*input.view)) c_.distinct(name, t, input.name, *input.view);
    }
    apart_from_gates(name, t);
  }
  /// Key-wise gates have the shape of w.
  void apart_from_gates(const char* name, const Tensor& t) noexcept {
    if (present(p_.gate)) c_.distinct(name, t, "gate", p_.gate);
    if (present(p_.g_cumsum)) c_.distinct(name, t, "g_cumsum", p_.g_cumsum);
  }

  Checker& c_;
  const Args& a_;
  ChunkStageProblem& p_;
};

}  // namespace

void check(Checker& c, const Args& args, Depth depth, ChunkStageProblem* problem) noexcept {
  c.choice("stage", args.stage, kStages,
           "0 (CHUNK_CUMSUM), 1 (SCALED_DOT_KKT), 2 (SOLVE_TRIL), 3 (WY_FAST), 4 (CHUNK_H), "
           "5 (CHUNK_O), 6 (CUMSUM_KKT) or 7 (SOLVE_WY)");
  if (!c.ok()) return;
  problem->stage = static_cast<sluice_stage>(args.stage);
  c.rename(stage_name(problem->stage));
  StageRules rules(c, args, problem);
  rules.check();
  if (c.ok() && sees_contents(depth, c.device())) rules.check_contents();
}

}  // namespace sluice::core
