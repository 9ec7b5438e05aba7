// Makes problems of chunk_backward and their plans, of addresses that nobody reads.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TESTS_EMULATION_BACKWARD_PROBLEMS_HPP_
#define SLUICE_TESTS_EMULATION_BACKWARD_PROBLEMS_HPP_

#include <gtest/gtest.h>

#include <initializer_list>

#include "core/dense_view.hpp"
#include "cuda/catalogues.h"
#include "cuda/chunk_backward/waves.h"

namespace sluice::cuda {

using core::ChunkBackwardProblem, core::Plan, core::PlanFor, core::Tensor;

/// A dense view; of its address only what it is a multiple of counts.
inline Tensor view(sluice_dtype dtype, std::initializer_list<int64_t> shape) {
  return core::dense_view(reinterpret_cast<void*>(uintptr_t{4096}), dtype, shape);
}

struct Sizes {
  int64_t B, T, H, HV;
};

/// A training call: normalised keys, gates, write strengths, all gradients of rows.
inline ChunkBackwardProblem training(const Sizes& s) {
  constexpr sluice_dtype kBf16{4, 16}, kFloat{2, 32};
  ChunkBackwardProblem b;
  core::DeltaRuleProblem& p = b.forward;
  p.rows = {s.B, s.T, s.B, {}, s.T};
  p.H = s.H, p.HV = s.HV, p.r = s.HV / s.H, p.K = p.V = 128;
  p.qk_norm = SLUICE_QK_NORM_L2;
  p.q = p.k = b.dq = b.dk = view(kBf16, {s.B, s.T, s.H, 128});
  p.v = b.d_o = b.dv = view(kBf16, {s.B, s.T, s.HV, 128});
  p.gate = p.beta = b.dgate = b.dbeta = view(kFloat, {s.B, s.T, s.H, p.r});
  return b;
}

inline void misalign(ChunkBackwardProblem* b) {
  for (Tensor* t : {&b->forward.q, &b->forward.k, &b->forward.v, &b->d_o, &b->dq, &b->dk, &b->dv}) {
    t->data = static_cast<std::byte*>(t->data) + 2;
  }
}

inline Plan plan_of(const ChunkBackwardProblem& b, PlanFor purpose = PlanFor::kCall) {
  Plan plan;
  const Status status =
      plan_by(chunk_backward_catalogue(), b, {0, 90, 132, {}}, {}, purpose, &plan);
  EXPECT_TRUE(status.ok()) << status.message;
  return plan;
}

inline size_t rows_of(const Sizes& s) { return static_cast<size_t>(s.B * s.T * s.HV); }

}  // namespace sluice::cuda

#endif  // SLUICE_TESTS_EMULATION_BACKWARD_PROBLEMS_HPP_
