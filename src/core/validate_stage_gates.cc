// Validates the gates of chunk_stage and their sums, scalar and key-wise.
// SPDX-License-Identifier: Apache-2.0
#include "core/validate_stage_gates.hpp"

#include "core/host_access.hpp"

namespace sluice::core {
namespace {

void check_single_precision(Checker& c, const char* name, const Tensor& t) noexcept {
  if (c.ok() && !same(t.dtype, kFloat32)) {
    c.fail("%s dtype = %s, expected float32 (sums lose too much in 16 bits)", name,
           type_name(t.dtype).text);
  }
}

}  // namespace

void check_token_axes(Checker& c, const ChunkStageProblem& p, const char* name, const Tensor& t,
                      int axes) noexcept {
  const int64_t sizes[] = {p.rows.B, p.rows.T, p.HV};
  constexpr const char* kWhat[] = {"batch entries B", "tokens T", "value heads HV"};
  for (int axis = 0; axis < axes; ++axis) c.dimension(name, t, axis, sizes[axis], kWhat[axis]);
}

bool check_gate_view(Checker& c, const char* name, const Tensor& t, bool required,
                     ChunkStageProblem* p) noexcept {
  const bool key_wise = t.rank == 4 && (required || present(t));
  if (key_wise && p->stage != SLUICE_STAGE_CHUNK_CUMSUM && p->stage != SLUICE_STAGE_CHUNK_H) {
    c.fail("%s rank = 4, expected 3 (only chunk_cumsum and chunk_h take key-wise gates)", name);
  }
  const int rank = key_wise ? 4 : 3;
  const bool usable = required ? c.required(name, t, rank, Dtypes::kFloat)
                               : c.optional(name, t, rank, Dtypes::kFloat);
  if (usable && key_wise) c.inner_contiguous(name, t);
  if (key_wise) p->key_gates = true;
  return usable && c.ok();
}

void check_sums_written(Checker& c, const Tensor& g_cumsum, ChunkStageProblem* p) noexcept {
  p->g_cumsum = g_cumsum;
  if (!c.required("g_cumsum", g_cumsum, p->key_gates ? 4 : 3, Dtypes::kFloat)) return;
  check_token_axes(c, *p, "g_cumsum", g_cumsum, 3);
  if (p->key_gates) {
    c.dimension("g_cumsum", g_cumsum, 3, p->K, "K of gate");
    c.inner_contiguous("g_cumsum", g_cumsum);
  }
  check_single_precision(c, "g_cumsum", g_cumsum);
  c.writable("g_cumsum", g_cumsum);
  c.distinct("g_cumsum", g_cumsum, "gate", p->gate);
}

void check_sums_read(Checker& c, const Tensor& gate, const Tensor& g_cumsum,
                     ChunkStageProblem* p) noexcept {
  const bool summed = present(g_cumsum);
  const char* const name = summed ? "g_cumsum" : "gate";
  const Tensor& given = summed ? g_cumsum : gate;
  if (!check_gate_view(c, name, given, false, p)) return;
  check_token_axes(c, *p, name, given, 3);
  if (p->key_gates) c.dimension(name, given, 3, p->K, "head dimension K: key-wise gates");
  if (summed) check_single_precision(c, name, given);
  (summed ? p->g_cumsum : p->gate) = given;
}

}  // namespace sluice::core
