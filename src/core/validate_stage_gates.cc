// Validates the gates of chunk_stage and their sums, scalar and key-wise.
// SPDX-License-Identifier: Apache-2.0
#include "core/validate_stage_gates.hpp"

#include "core/host_access.hpp"
#include "core/validate.hpp"

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

void check_channels(Checker& c, const ChunkStageProblem& p, const char* name,
                    const Tensor& t) noexcept {
  if (p.key_gates) c.dimension(name, t, 3, p.K, "head dimension K: key-wise gates");
}

bool check_gate_view(Checker& c, const char* name, const Tensor& t, bool required,
                     ChunkStageProblem* p) noexcept {
  const bool key_wise = t.rank == 4 && (required || present(t));
  const int rank = key_wise ? 4 : 3;
  const bool usable = required ? c.required(name, t, rank, Dtypes::kFloat)
                               : c.optional(name, t, rank, Dtypes::kFloat);
  if (usable && key_wise) c.inner_contiguous(name, t);
  if (key_wise) p->key_gates = true;
  return usable && c.ok();
}

void check_any_gate_space(Checker& c, const sluice_chunk_stage_args& args,
                          ChunkStageProblem* p) noexcept {
  c.choice("gate_space", args.gate_space, 4, "0 (LOG), 1 (LINEAR), 2 (RAW) or 3 (RAW_BOUNDED)");
  if (!c.ok()) return;
  check_gate_space(c, {args.gate_space, args.gate_lower_bound, args.A_log, args.dt_bias}, p->HV,
                   p->key_gates ? p->K : 0);
  p->gate_space = static_cast<sluice_gate_space>(args.gate_space);
  p->gate_lower_bound = args.gate_lower_bound;
  p->A_log = args.A_log, p->dt_bias = args.dt_bias;
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
  check_channels(c, *p, name, given);
  if (summed) check_single_precision(c, name, given);
  (summed ? p->g_cumsum : p->gate) = given;
}

}  // namespace sluice::core
