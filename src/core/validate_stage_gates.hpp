// Validates the gates of chunk_stage and their sums, scalar and key-wise.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_VALIDATE_STAGE_GATES_HPP_
#define SLUICE_CORE_VALIDATE_STAGE_GATES_HPP_

#include "core/view_rules.hpp"

namespace sluice::core {

/// The first `axes` of B, T, HV, which the problem knows.
void check_token_axes(Checker& c, const ChunkStageProblem& p, const char* name, const Tensor& t,
                      int axes) noexcept;
/// A view of gates or their sums: [B,T,HV], or key-wise [B,T,HV,K]. False: absent and not required,
/// or refused.
bool check_gate_view(Checker& c, const char* name, const Tensor& t, bool required,
                     ChunkStageProblem* p) noexcept;
/// The channels of key-wise gates, which are those of k.
void check_channels(Checker& c, const ChunkStageProblem& p, const char* name,
                    const Tensor& t) noexcept;
/// A gate space with its parameters.
void check_any_gate_space(Checker& c, const sluice_chunk_stage_args& args,
                          ChunkStageProblem* p) noexcept;
/// g_cumsum as the output that belongs to p->gate.
void check_sums_written(Checker& c, const Tensor& g_cumsum, ChunkStageProblem* p) noexcept;
/// G as an input: g_cumsum, else the sums of gate.
void check_sums_read(Checker& c, const Tensor& gate, const Tensor& g_cumsum,
                     ChunkStageProblem* p) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_VALIDATE_STAGE_GATES_HPP_
