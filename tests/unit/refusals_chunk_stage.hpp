// Makes a valid call of every stage for their refusal tests, and ways to vary it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_UNIT_REFUSALS_CHUNK_STAGE_HPP_
#define SLUICE_TESTS_UNIT_REFUSALS_CHUNK_STAGE_HPP_

#include "refusals_scene.hpp"

namespace sluice::check::stages {

using Args = sluice_chunk_stage_args;
using StageScene = Scene<Args>;

inline constexpr sluice_op kOp = SLUICE_OP_CHUNK_STAGE;
inline constexpr int64_t kB = 2, kT = 19, kH = 1, kHV = 2, kK = 3, kV = 5, kC = 16, kChunks = 2;

/// Two sequences of a whole chunk and three tokens.
inline StageScene valid_scene(sluice_stage stage) {
  StageScene s;
  Memory& m = *s.memory;
  s.args.struct_size = sizeof s.args;
  s.args.q = m.tensor(kFloat32, {kB, kT, kH, kK});
  s.args.k = m.tensor(kFloat32, {kB, kT, kH, kK});
  s.args.v = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.gate = m.tensor(kBFloat16, {kB, kT, kHV});
  s.args.beta = m.tensor(kFloat32, {kB, kT, kHV});
  s.args.g_cumsum = m.tensor(kFloat32, {kB, kT, kHV});
  s.args.A = m.tensor(kFloat32, {kB, kT, kHV, kC});
  s.args.A_inverse = m.tensor(kFloat32, {kB, kT, kHV, kC});
  s.args.w = m.tensor(kFloat32, {kB, kT, kHV, kK});
  s.args.u = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.v_new = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.h = m.tensor(kFloat32, {kB, kChunks, kHV, kK, kV});
  s.args.o = m.tensor(kFloat32, {kB, kT, kHV, kV});
  s.args.state.initial = m.tensor(kFloat32, {kB, kHV, kK, kV});
  s.args.state.final = m.tensor(kFloat32, {kB, kHV, kK, kV});
  s.args.chunk_size = kC;
  s.args.stage = stage;
  s.args.implementation = SLUICE_IMPL_REFERENCE;
  s.workspace = {m.take(12288), 12288};
  return s;
}

inline constexpr auto kCumsum = SLUICE_STAGE_CHUNK_CUMSUM;
inline constexpr auto kKkt = SLUICE_STAGE_SCALED_DOT_KKT;
inline constexpr auto kSolve = SLUICE_STAGE_SOLVE_TRIL;
inline constexpr auto kWy = SLUICE_STAGE_WY_FAST;
inline constexpr auto kStates = SLUICE_STAGE_CHUNK_H;
inline constexpr auto kOutputs = SLUICE_STAGE_CHUNK_O;
inline constexpr auto kCumsumKkt = SLUICE_STAGE_CUMSUM_KKT;
inline constexpr auto kSolveWy = SLUICE_STAGE_SOLVE_WY;

/// One packed row of `kT` tokens.
inline void pack(StageScene& s, std::initializer_list<int64_t> offsets) {
  for (sluice_tensor* t :
       {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.g_cumsum, &s.args.A,
        &s.args.A_inverse, &s.args.w, &s.args.u, &s.args.v_new, &s.args.h, &s.args.o}) {
    t->shape[0] = 1;
  }
  s.args.cu_seqlens = s.memory->indices(offsets);
}

/// A and A_inverse as matrices [2, n, n].
inline void batch(StageScene& s, int64_t n) {
  s.args.matrices = SLUICE_MATRICES_BATCHED;
  s.args.A = s.memory->tensor(kFloat32, {2, n, n});
  s.args.A_inverse = s.memory->tensor(kFloat32, {2, n, n});
}

}  // namespace sluice::check::stages

#endif  // SLUICE_TESTS_UNIT_REFUSALS_CHUNK_STAGE_HPP_
