// Judges the results of a delta rule call: limits by dtype, against the reference.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "check/tensors.hpp"
#include "parity/delta_call.hpp"

namespace sluice::check {
namespace {

/// The dtype whose rounding dominates.
sluice_dtype coarsest(std::initializer_list<sluice_dtype> dtypes) {
  sluice_dtype result = kF32;
  for (const sluice_dtype dtype : dtypes) {
    if (same_dtype(dtype, kBF16) || same_dtype(result, kF32)) result = dtype;
  }
  return result;
}

}  // namespace

Verdict judge_delta(const DeltaConfig& c, const DeltaResult& found, const DeltaResult& truth,
                    bool wide) {
  if (found.code != SLUICE_OK) return {false, found.message};
  Verdict verdict{found.damage.empty(), found.damage};
  const auto conditioning = wide ? Conditioning::kCorrelated : Conditioning::kBenign;
  const auto add = [&](const char* name, const Comparison& comparison, Tolerance tolerance) {
    const Verdict part = judge(name, comparison, tolerance);
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  };
  const bool any_rows = c.packed ? c.offsets().back() > 0 : c.B * c.T > 0;
  if (any_rows) {
    add("o", compare_tokens(view_of(found.o), view_of(truth.o), c.offsets()),
        cap(coarsest({c.io, c.o}), Quantity::kOutput, conditioning));
  }
  const auto states = [&](const char* name, const Array& x, const Array& ref, sluice_dtype dtype) {
    if (ref.size() == 0) return;
    // float32 states of correlated keys: as wide as their outputs.
    const Quantity quantity = wide ? Quantity::kOutput : Quantity::kState;
    add(name, compare_states(view_of(x), view_of(ref)),
        cap(coarsest({c.io, dtype}), quantity, conditioning));
  };
  states("initial", found.initial, truth.initial, c.initial);
  states("final", found.final, truth.final, c.final);
  states("checkpoints", found.checkpoints, truth.checkpoints, c.checkpoint);
  for (auto i = static_cast<size_t>(c.packed ? c.offsets().back() * c.HV * c.V : found.o.size());
       i < found.o.values.size(); ++i) {
    if (std::isnan(found.o.values[i])) continue;
    verdict.pass = false;
    verdict.line += "o: a row past the last sequence was written\n";
    break;
  }
  return verdict;
}

}  // namespace sluice::check
