// The stages of a prefill in C++: one struct that names every tensor of the chunk form, one
// function a stage. Semantics, shapes and sources are those of sluice_chunk_stage_args in sluice.h;
// docs/stages.md is the page.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_STAGES_HPP_
#define SLUICE_STAGES_HPP_

#include <cstdint>
#include <optional>

#include "sluice/ops.hpp"

namespace sluice {

enum class Stage : int32_t {
  kChunkCumsum,
  kScaledDotKkt,
  kSolveTril,
  kWyFast,
  kChunkH,
  kChunkO,
  kCumsumKkt,  ///< the first two in one
  kSolveWy     ///< the next two in one
};
enum class Direction : int32_t { kForward, kReverse };
enum class Triangle : int32_t { kLower, kUpper };
enum class Matrices : int32_t { kChunks, kBatched };

/// sluice_chunk_stage_args. A stage looks at its own views only, so one struct serves a whole
/// chain.
struct ChunkStageArgs {
  using CArgs = sluice_chunk_stage_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_STAGE;

  Stage stage = Stage::kChunkCumsum;  ///< set by the functions below
  TensorView q{}, k{}, v{}, gate{}, beta{}, g_cumsum{};
  TensorView A{}, A_inverse{}, w{}, u{}, v_new{}, h{}, o{};
  TensorView cu_seqlens{};
  StateIo state{};
  std::optional<double> scale{};  ///< empty = K^-0.5
  int32_t chunk_size = 0;         ///< 16, 32, 64, 128; 0 = 64
  Rule rule = Rule::kGatedDelta;
  HeadMap head_map = HeadMap::kBlock;
  Direction direction = Direction::kForward;
  Triangle triangle = Triangle::kLower;
  Matrices matrices = Matrices::kChunks;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] ChunkStageArgs of(Stage chosen) const noexcept {
    ChunkStageArgs args = *this;
    args.stage = chosen;
    return args;
  }

  [[nodiscard]] CArgs c() const noexcept {
    CArgs a{};
    a.struct_size = sizeof a;
    a.q = q, a.k = k, a.v = v, a.gate = gate, a.beta = beta, a.g_cumsum = g_cumsum;
    a.A = A, a.A_inverse = A_inverse, a.w = w, a.u = u, a.v_new = v_new, a.h = h, a.o = o;
    a.cu_seqlens = cu_seqlens;
    a.state = state.c();
    a.scale = scale.value_or(0), a.scale_mode = scale.has_value() ? 1 : 0;
    a.stage = static_cast<int32_t>(stage);
    a.chunk_size = chunk_size;
    a.rule = static_cast<int32_t>(rule);
    a.head_map = static_cast<int32_t>(head_map);
    a.direction = static_cast<int32_t>(direction);
    a.triangle = static_cast<int32_t>(triangle);
    a.matrices = static_cast<int32_t>(matrices);
    a.implementation = static_cast<int32_t>(implementation);
    return a;
  }
};

/// The stage that args.stage names. See sluice_chunk_stage_args.
inline Status chunk_stage(const ChunkStageArgs& args, Workspace workspace = {},
                          Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_chunk_stage(&c, workspace.c(), stream));
}
/// gate -> g_cumsum: G_i = sum over j <= i of g_j inside each chunk (kReverse: j >= i).
inline Status chunk_cumsum(const ChunkStageArgs& args, Workspace workspace = {},
                           Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kChunkCumsum), workspace, stream);
}
/// k, beta, G -> A: A_ij = beta_i exp(G_i - G_j) (k_i . k_j) for i > j, else 0.
inline Status scaled_dot_kkt(const ChunkStageArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kScaledDotKkt), workspace, stream);
}
/// A -> A_inverse = (I + A)^-1, triangle by triangle.
inline Status solve_tril(const ChunkStageArgs& args, Workspace workspace = {},
                         Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kSolveTril), workspace, stream);
}
/// k, v, beta, G, A_inverse -> u = A_inverse diag(beta) v, w = A_inverse diag(beta exp(G)) k.
inline Status wy_fast(const ChunkStageArgs& args, Workspace workspace = {},
                      Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kWyFast), workspace, stream);
}
/// k, u, w, G -> h (the state that enters each chunk), v_new = u - w h, state.final.
inline Status chunk_h(const ChunkStageArgs& args, Workspace workspace = {},
                      Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kChunkH), workspace, stream);
}
/// q, k, v_new, G, h -> o = scale (diag(exp G) q h + (exp(G_i - G_j) q k^T, i >= j) v_new).
inline Status chunk_o(const ChunkStageArgs& args, Workspace workspace = {},
                      Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kChunkO), workspace, stream);
}

/// chunk_cumsum() and scaled_dot_kkt() in one: gate, k, beta -> g_cumsum, A.
inline Status cumsum_kkt(const ChunkStageArgs& args, Workspace workspace = {},
                         Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kCumsumKkt), workspace, stream);
}
/// solve_tril() and wy_fast() in one: A, k, v, beta, G -> u, w; the inverse goes nowhere but to
/// A_inverse, if that is given.
inline Status solve_wy(const ChunkStageArgs& args, Workspace workspace = {},
                       Stream stream = nullptr) noexcept {
  return chunk_stage(args.of(Stage::kSolveWy), workspace, stream);
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
/// workspace_size(args.of(stage)) is one stage's.
[[nodiscard]] inline Result<WorkspaceSize> chunk_stages_workspace(
    const ChunkStageArgs& args) noexcept {
  Result<WorkspaceSize> largest = workspace_size(args.of(Stage::kChunkCumsum));
  for (int32_t stage = 1; stage <= static_cast<int32_t>(Stage::kSolveWy); ++stage) {
    const Result<WorkspaceSize> one = workspace_size(args.of(static_cast<Stage>(stage)));
    if (!one.ok()) continue;
    if (!largest.ok() || one.value.bytes > largest.value.bytes) largest = one;
  }
  return largest;
}

}  // namespace sluice

#endif  // SLUICE_STAGES_HPP_
