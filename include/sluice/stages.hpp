// Offers the stages of a prefill to C++: one struct that names every tensor of the chunk form, one
// function a stage. Semantics, shapes and sources are those of sluice_chunk_stage_args in sluice.h;
// docs/stages.md is the page.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_STAGES_HPP_
#define SLUICE_STAGES_HPP_

#include <cstdint>

#include "sluice/ops.hpp"

namespace sluice {

/// The arguments for one stage. A stage looks at its own views only, so one struct serves a chain.
[[nodiscard]] inline ChunkStageArgs stage_args(ChunkStageArgs args, Stage stage) noexcept {
  args.stage = stage;
  return args;
}

/// The stage that args.stage names. See sluice_chunk_stage_args.
inline Status chunk_stage(const ChunkStageArgs& args, Workspace workspace = {},
                          Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_chunk_stage(&c, workspace.c(), stream));
}
/// gate -> g_cumsum: G_i = sum over j <= i of g_j inside each chunk (kReverse: j >= i).
inline Status chunk_cumsum(const ChunkStageArgs& args, Workspace workspace = {},
                           Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kChunkCumsum), workspace, stream);
}
/// k, beta, G -> A: A_ij = beta_i exp(G_i - G_j) (k_i . k_j) for i > j, else 0.
inline Status scaled_dot_kkt(const ChunkStageArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kScaledDotKkt), workspace, stream);
}
/// A -> A_inverse = (I + A)^-1, triangle by triangle.
inline Status solve_tril(const ChunkStageArgs& args, Workspace workspace = {},
                         Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kSolveTril), workspace, stream);
}
/// k, v, beta, G, A_inverse -> u = A_inverse diag(beta) v, w = A_inverse diag(beta exp(G)) k.
inline Status wy_fast(const ChunkStageArgs& args, Workspace workspace = {},
                      Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kWyFast), workspace, stream);
}
/// k, u, w, G -> h (the state that enters each chunk), v_new = u - w h, state.final.
inline Status chunk_h(const ChunkStageArgs& args, Workspace workspace = {},
                      Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kChunkH), workspace, stream);
}
/// q, k, v_new, G, h -> o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j) v_new).
inline Status chunk_o(const ChunkStageArgs& args, Workspace workspace = {},
                      Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kChunkO), workspace, stream);
}

/// chunk_cumsum() and scaled_dot_kkt() in one: gate, k, beta -> g_cumsum, A.
inline Status cumsum_kkt(const ChunkStageArgs& args, Workspace workspace = {},
                         Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kCumsumKkt), workspace, stream);
}
/// solve_tril() and wy_fast() in one: A, k, v, beta, G -> u, w; the inverse goes nowhere but to
/// A_inverse, if that is given.
inline Status solve_wy(const ChunkStageArgs& args, Workspace workspace = {},
                       Stream stream = nullptr) noexcept {
  return chunk_stage(stage_args(args, Stage::kSolveWy), workspace, stream);
}

/// Simple GLA, S <- exp(g) S + k v^T, o = scale S^T q, as one call: q, k, v, gate or g_cumsum,
/// state -> o. chunk_o() with the rule LINEAR_ATTENTION; give `h` to read states of your own.
[[nodiscard]] inline ChunkStageArgs simple_gla_args(ChunkStageArgs args) noexcept {
  args.stage = Stage::kChunkO;
  args.rule = Rule::kLinearAttention;
  return args;
}
inline Status simple_gla(const ChunkStageArgs& args, Workspace workspace = {},
                         Stream stream = nullptr) noexcept {
  return chunk_stage(simple_gla_args(args), workspace, stream);
}

/// Bytes of workspace of the largest of the stages that these arguments are enough for, for a chain
/// that shares one workspace; the first stage's error if they are enough for none.
/// workspace_size(stage_args(args, stage)) is one stage's.
[[nodiscard]] inline Result<WorkspaceSize> chunk_stages_workspace(
    const ChunkStageArgs& args) noexcept {
  Result<WorkspaceSize> largest = workspace_size(stage_args(args, Stage::kChunkCumsum));
  for (int32_t stage = 1; stage <= static_cast<int32_t>(Stage::kSolveWy); ++stage) {
    const Result<WorkspaceSize> one = workspace_size(stage_args(args, static_cast<Stage>(stage)));
    if (!one.ok()) continue;
    if (!largest.ok() || one.value.bytes > largest.value.bytes) largest = one;
  }
  return largest;
}

}  // namespace sluice

#endif  // SLUICE_STAGES_HPP_
