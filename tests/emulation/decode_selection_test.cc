// Measures which steps the decode kernels take, and what they say of the others. Problems are built
// by hand and spoilt in one thing each; no GPU is needed.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cuda/catalogues.h"
#include "cuda/decode/lower.h"

namespace sluice::cuda::decode {
namespace {

using core::DeltaRuleProblem, core::LayerProblem, core::Tensor;

/// A GPU with few multiprocessors.
Machine gpu(int multiprocessors = 1, int capability = 90) {
  return {0, capability, multiprocessors, {}};
}

Catalogue<DeltaRuleProblem> kernels_for(const DeltaRuleProblem&) {
  return recurrent_step_catalogue();
}
Catalogue<LayerProblem> kernels_for(const LayerProblem&) { return layer_decode_catalogue(); }

/// What the kernels of decode make of a problem, those that others fall back on left out.
template <class Problem>
Status plan_fused(const Problem& p, const Machine& machine, core::Plan* plan) {
  Environment fused;
  fused.kernel = KernelOverride::kFast;
  return plan_by(kernels_for(p), p, machine, fused, core::PlanFor::kCall, plan);
}

template <class Problem>
std::string refusal(const Problem& p, int capability = 90) {
  core::Plan plan;
  const Status status = plan_fused(p, gpu(1, capability), &plan);
  return status.ok() ? "" : status.message;
}

/// Name of the kernel that takes a problem; empty: none.
template <class Problem>
std::string kernel_of(const Problem& p) {
  core::Plan plan;
  return plan_fused(p, gpu(), &plan).ok() ? plan.kernel : "";
}

bool takes_single(const DeltaRuleProblem& p) {
  return kernel_of(p).find("single_k128") != std::string::npos;
}

SinglePlan single_plan(const DeltaRuleProblem& p, int multiprocessors) {
  core::Plan plan;
  EXPECT_TRUE(plan_fused(p, gpu(multiprocessors), &plan).ok());
  return plan.kept<SinglePlan>();
}

DeltaRuleProblem step(int64_t K = 128, int64_t V = 128) {
  DeltaRuleProblem p;
  p.op = SLUICE_OP_RECURRENT_STEP;
  p.rows = {1, 1, 1, {}, 1};
  p.H = 2, p.HV = 4, p.r = 2, p.K = K, p.V = V;
  Tensor pool{};
  pool.data = reinterpret_cast<void*>(uintptr_t{4096});
  pool.dtype = {2, 32};
  pool.rank = 4;
  pool.shape[0] = 3, pool.stride[0] = p.HV * K * V;
  p.state.initial = p.state.final = pool;
  return p;
}

TEST(DecodeSelection, Steps) {
  EXPECT_EQ(refusal(step()), "");
  EXPECT_EQ(kernel_of(step()), "cuda.recurrent_step.sm_90a.k128");
  EXPECT_EQ(kernel_of(step(20, 12)), "cuda.recurrent_step.sm_90a.k64");
  EXPECT_EQ(kernel_of(step(60)), "cuda.recurrent_step.sm_90a.k64");
  EXPECT_EQ(kernel_of(step(132)), "cuda.recurrent_step.sm_90a.k256");
  EXPECT_EQ(refusal(step(), 100),
            "recurrent_step: compute capability = 10.0, expected 9.0 (CUDA decode kernel)");
  EXPECT_EQ(refusal(step(260)),
            "recurrent_step: K, V = 260, 128, expected at most 256 and 1024 (CUDA decode kernel)");
  EXPECT_EQ(refusal(step(126)),
            "recurrent_step: K, V = 126, 128, expected multiples of 4 (CUDA decode kernel)");
  DeltaRuleProblem p = step();
  p.key_gate = p.state.initial;  // only that it is there counts
  EXPECT_EQ(kernel_of(p), "cuda.recurrent_step.sm_90a.k128.key_gates");
}

/// step() as the kernel of single tokens takes it: two sequences of bfloat16 tokens.
DeltaRuleProblem single_step() {
  DeltaRuleProblem p = step();
  p.rows = {2, 1, 2, {}, 1};
  const auto rows = [&](int64_t heads) {
    Tensor t{};
    t.data = reinterpret_cast<void*>(uintptr_t{8192});
    t.dtype = {4, 16};
    t.rank = 4;
    t.shape[0] = 2, t.shape[1] = 1, t.shape[2] = heads, t.shape[3] = 128;
    t.stride[0] = heads * 128, t.stride[1] = heads * 128, t.stride[2] = 128, t.stride[3] = 1;
    return t;
  };
  p.q = p.k = rows(p.H), p.v = p.o = rows(p.HV);
  return p;
}

/// single_step() with its tokens packed, and states of [V,K].
DeltaRuleProblem packed_step() {
  DeltaRuleProblem p = single_step();
  p.state.layout = SLUICE_STATE_VK;
  for (Tensor* t : {&p.q, &p.k, &p.v, &p.o}) {
    t->shape[0] = 1, t->shape[1] = 2;
    t->stride[0] = 2 * t->stride[1];
  }
  Tensor offsets{};
  offsets.data = reinterpret_cast<void*>(uintptr_t{64});
  offsets.dtype = {0, 32};
  offsets.rank = 1;
  offsets.shape[0] = 3, offsets.stride[0] = 1;
  p.rows = {1, 2, 2, offsets, 1};
  return p;
}

TEST(DecodeSelection, SingleTokens) {
  EXPECT_TRUE(takes_single(single_step()));
  EXPECT_EQ(kernel_of(single_step()), "cuda.recurrent_step.sm_90a.single_k128.stream");
  const std::function<void(DeltaRuleProblem&)> spoilers[] = {
      [](auto& p) { p.K = 64; },
      [](auto& p) { p.V = 256; },
      [](auto& p) { p.rows.max_tokens = 2; },
      [](auto& p) { p.rows.cu_seqlens = p.q; },
      [](auto& p) { p.num_accepted = p.q; },
      [](auto& p) { p.q.dtype = p.k.dtype = p.v.dtype = p.o.dtype = {2, 32}; },
      [](auto& p) { p.o.dtype = {2, 32}; },
      [](auto& p) { p.o.dtype = {2, 16}; },
      [](auto& p) { p.state.final.dtype = {4, 16}; },
      [](auto& p) { p.state.initial.dtype = p.state.final.dtype = {2, 16}; },
      [](auto& p) { p.state.initial.data = p.state.final.data = nullptr; },
      [](auto& p) { p.state.initial.stride[0] = int64_t{1} << 30; },
      [](auto& p) { p.state.final.shape[0] = 0; },
      [](auto& p) { p.state.pad_below = int64_t{1} << 40; },
      [](auto& p) { p.q.data = reinterpret_cast<void*>(uintptr_t{8194}); },
      [](auto& p) { p.k.stride[0] += 4; },
      [](auto& p) { p.v.stride[2] += 4; },
      [](auto& p) { p.v.stride[0] = -p.v.stride[0]; },
      [](auto& p) { p.o.stride[0] = int64_t{1} << 40; },
      [](auto& p) { p.state.initial.stride[0] += 2; },
      [](auto& p) { p.rows.N = 1 << 16; },
  };
  for (const auto& spoil : spoilers) {
    DeltaRuleProblem p = single_step();
    spoil(p);
    EXPECT_FALSE(takes_single(p)) << &spoil - spoilers;
  }
  DeltaRuleProblem p = single_step();
  p.state.initial.dtype = p.state.final.dtype = {4, 16};
  EXPECT_TRUE(takes_single(p));
  p.state.final.data = nullptr;
  EXPECT_TRUE(takes_single(p));
  p = single_step();
  p.state.layout = SLUICE_STATE_VK;
  EXPECT_EQ(kernel_of(p), "cuda.recurrent_step.sm_90a.single_k128.vk.narrow");
  p = packed_step();
  EXPECT_EQ(kernel_of(p), "cuda.recurrent_step.sm_90a.single_k128.vk.packed");
  p.state.layout = SLUICE_STATE_KV;
  EXPECT_FALSE(takes_single(p)) << "packed tokens on states of [K,V]";
  p = packed_step();
  p.k.stride[1] += 4;
  EXPECT_FALSE(takes_single(p)) << "rows that are not aligned";
  p = packed_step();
  p.rows.max_tokens = 2;
  EXPECT_FALSE(takes_single(p));
  p = single_step();
  p.gate = {}, p.key_gate = p.q;
  EXPECT_TRUE(takes_single(p)) << "with a gate for each row of a state";
  p.key_gate.stride[0] = -1;
  EXPECT_FALSE(takes_single(p));
}

TEST(DecodeSelection, SingleTokensThatReadOrWriteAlone) {
  DeltaRuleProblem reads = single_step();
  reads.state.final = {};
  EXPECT_TRUE(takes_single(reads));
  DeltaRuleProblem writes = single_step();
  writes.state.initial = {};
  EXPECT_TRUE(takes_single(writes));
}

TEST(DecodeSelection, SinglePlans) {
  const auto kv = [](int64_t heads, Number state) { return plan_single(heads, state, false, 132); };
  EXPECT_EQ(kv(64, Number::kFloat32).cut, SingleCut::kNarrow);
  EXPECT_EQ(kv(128, Number::kFloat32).cut, SingleCut::kWide);
  EXPECT_EQ(kv(160, Number::kFloat32).cut, SingleCut::kNarrow);
  EXPECT_EQ(kv(160, Number::kBfloat16).cut, SingleCut::kMany);
  EXPECT_EQ(kv(256, Number::kFloat32).cut, SingleCut::kStream);
  EXPECT_TRUE(kv(256, Number::kBfloat16).keeps);
  EXPECT_EQ(kv(512, Number::kFloat32).cut, SingleCut::kStream);
  EXPECT_EQ(kv(512, Number::kFloat32).ctas, 132u);
  EXPECT_EQ(kv(512, Number::kBfloat16).ctas, 264u);
  EXPECT_EQ(kv(8192, Number::kFloat32).cut, SingleCut::kMany);
  EXPECT_EQ(kv(8192, Number::kBfloat16).cut, SingleCut::kMany);
  EXPECT_FALSE(kv(512, Number::kFloat32).keeps);
  EXPECT_TRUE(kv(1024, Number::kFloat32).keeps);
  EXPECT_EQ(single_plan(single_step(), 100).cut, SingleCut::kNarrow);
  EXPECT_EQ(single_plan(single_step(), 8).cut, SingleCut::kWide);
  EXPECT_EQ(single_plan(single_step(), 3).cut, SingleCut::kStream);
  DeltaRuleProblem p = single_step();
  p.rows.N = 3;
  EXPECT_EQ(single_plan(p, 1).cut, SingleCut::kMany);
  EXPECT_TRUE(lower_single_step(p, single_plan(p, 100)).early);
  EXPECT_FALSE(lower_single_step(p, single_plan(p, 1)).early);
}

/// Of [V,K] narrow tiles, and CTAs that stay where each of them has as many heads as the others.
TEST(DecodeSelection, SinglePlansOfColumnsInRows) {
  const auto vk = [](int64_t heads, Number state) { return plan_single(heads, state, true, 132); };
  for (const int64_t heads : {32, 128, 160, 256, 512, 768, 1024, 8192}) {
    EXPECT_EQ(vk(heads, Number::kFloat32).cut, SingleCut::kNarrow) << heads;
    EXPECT_EQ(vk(heads, Number::kFloat32).keeps, heads > 132) << heads;
    const bool stays = heads == 512 || heads == 768 || heads == 1024;
    EXPECT_EQ(vk(heads, Number::kBfloat16).cut, stays ? SingleCut::kStream : SingleCut::kNarrow);
  }
  EXPECT_EQ(vk(640, Number::kBfloat16).cut, SingleCut::kNarrow);
  EXPECT_EQ(vk(512, Number::kBfloat16).ctas, 264u);
}

/// The L2 keeps old states where new ones replace them, and where there are many.
TEST(DecodeSelection, KeptStates) {
  DeltaRuleProblem p = single_step();
  EXPECT_TRUE(lower_single_step(p, single_plan(p, 1)).keeps);
  EXPECT_FALSE(lower_single_step(p, single_plan(p, 100)).keeps);
  p.state.final.data = reinterpret_cast<void*>(uintptr_t{8192});
  EXPECT_FALSE(lower_single_step(p, single_plan(p, 1)).keeps);
}

/// step() with a ring of ten entries.
DeltaRuleProblem ring_step(int64_t K = 128) {
  DeltaRuleProblem p = step(K);
  const auto entries = [&](int64_t heads, int64_t D) {
    Tensor t = p.state.initial;
    t.dtype = {4, 16};
    t.shape[1] = 10, t.stride[1] = heads * D, t.stride[0] = 10 * heads * D;
    return t;
  };
  p.ring.k = entries(p.H, K), p.ring.delta = entries(p.HV, p.V), p.ring.decay = entries(p.HV, 1);
  return p;
}

TEST(DecodeSelection, Rings) {
  const auto refused = [](const DeltaRuleProblem& p) { return refusal(p); };
  EXPECT_EQ(refused(ring_step()), "");
  EXPECT_EQ(kernel_of(ring_step()), "cuda.recurrent_step.sm_90a.replay_k128");
  EXPECT_EQ(kernel_of(ring_step(48)), "cuda.recurrent_step.sm_90a.replay_k64");
  EXPECT_EQ(refused(ring_step(132)),
            "recurrent_step: K = 132, expected at most 128 (CUDA replay kernel)");
  EXPECT_EQ(refused(ring_step(126)),
            "recurrent_step: K, V = 126, 128, expected multiples of 4 (CUDA decode kernel)");
  DeltaRuleProblem p = ring_step();
  p.ring.k.data = reinterpret_cast<void*>(uintptr_t{4100});
  EXPECT_EQ(refused(p),
            "recurrent_step: ring.k.data address mod 8 = 4, expected 0 (CUDA replay kernel)");
  p = ring_step();
  p.ring.delta.stride[0] += 2;
  EXPECT_EQ(refused(p),
            "recurrent_step: ring.delta.stride[0] = 5122, expected a multiple of 4 (CUDA replay "
            "kernel)");
  p = ring_step();
  p.rows.max_tokens = 8, p.V = 32, p.r = 3300, p.HV = 6600;
  EXPECT_EQ(refused(p),
            "recurrent_step: r, tokens = 3300, 8 need 260644 bytes of shared memory, expected at "
            "most 232448 (CUDA replay kernel)");
}

/// A layer around a step: its gates are raw.
LayerProblem layer_of(const DeltaRuleProblem& delta) {
  LayerProblem layer;
  layer.delta = delta;
  layer.delta.gate.data = reinterpret_cast<void*>(uintptr_t{4096});
  layer.delta.gate_space = SLUICE_GATE_RAW;
  return layer;
}

TEST(DecodeSelection, RingsOfLayers) {
  const auto refused = [](const DeltaRuleProblem& delta) { return refusal(layer_of(delta)); };
  const LayerProblem layer = layer_of(ring_step());
  EXPECT_EQ(refused(layer.delta), "");
  EXPECT_EQ(kernel_of(layer), "cuda.layer_decode.sm_90a.replay_k128");
  EXPECT_EQ(refused(ring_step(132)),
            "layer_decode: K = 132, expected at most 128 (CUDA replay kernel)");
  DeltaRuleProblem p = ring_step();
  p.state.initial.data = p.state.final.data = reinterpret_cast<void*>(uintptr_t{4104});
  EXPECT_EQ(refused(p),
            "layer_decode: state.initial = no vectors, expected K, V, slot stride and address to "
            "be multiples of 4 numbers (CUDA replay kernel)");
  p = ring_step();
  p.r = 9, p.HV = 18;
  EXPECT_EQ(
      refused(p),
      "layer_decode: r, V = 9, 128 make 9 tiles, expected at most 8 (CUDA replay kernel; a tile "
      "is 128 columns of a value head of a key head)");
  p = ring_step();
  p.ring.k.data = reinterpret_cast<void*>(uintptr_t{4100});
  EXPECT_EQ(refused(p),
            "layer_decode: ring.k.data address mod 8 = 4, expected 0 (CUDA replay kernel)");
}

struct Spoilt {
  std::function<void(DeltaRuleProblem&)> spoil;
  const char* message;
};

TEST(DecodeSelection, WhatStepsRefuseAndLayersTake) {
  const Spoilt cases[] = {
      {[](DeltaRuleProblem& p) { p.state.initial.data = reinterpret_cast<void*>(uintptr_t{4104}); },
       "recurrent_step: state.initial.data address mod 16 = 8, expected 0 (CUDA decode kernel)"},
      {[](DeltaRuleProblem& p) { p.state.final.stride[0] += 2; },
       "recurrent_step: state.final.stride[0] = 65538, expected a multiple of 4 (CUDA decode "
       "kernel)"},
      {[](DeltaRuleProblem& p) { p.V = 31; },
       "recurrent_step: K, V = 128, 31, expected multiples of 4 (CUDA decode kernel)"}};
  for (const Spoilt& c : cases) {
    LayerProblem layer = layer_of(step());
    EXPECT_EQ(kernel_of(layer), "cuda.layer_decode.sm_90a.k128");
    c.spoil(layer.delta);
    EXPECT_EQ(refusal(layer.delta), c.message);
    EXPECT_EQ(refusal(layer), "");
    EXPECT_EQ(kernel_of(layer), "cuda.layer_decode.sm_90a.by_element");
  }
}

TEST(DecodeSelection, Counts) {
  DeltaRuleProblem p = step();
  p.rows.N = 1 << 16;
  EXPECT_EQ(refusal(p),
            "recurrent_step: N, H, tiles = 65536, 2, 8, expected below 2^16, 2^16 and 2^12 (CUDA "
            "decode kernel; a tile is 32 columns of a value head of a key head)");
  p = step();
  p.r = 2000, p.HV = 4000;
  EXPECT_NE(refusal(p), "");
  LayerProblem layer;
  layer.delta = step(256, 256);
  layer.delta.r = 64, layer.delta.HV = 128, layer.delta.rows.max_tokens = 16;
  EXPECT_NE(refusal(layer), "");
}

/// A replay ring has kernels of its own, all of them fast ones.
TEST(DecodeSelection, NothingElseTakesRings) {
  Environment generic;
  generic.kernel = KernelOverride::kGeneric;
  core::Plan plan;
  const Status status =
      plan_by(recurrent_step_catalogue(), ring_step(), gpu(), generic, core::PlanFor::kCall, &plan);
  EXPECT_STREQ(status.message,
               "cuda: SLUICE_CUDA_KERNEL = generic, expected auto or fused (the operator has no "
               "such kernel for this problem)");
}

}  // namespace
}  // namespace sluice::cuda::decode
