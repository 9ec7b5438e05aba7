// Measures which kernel plans a prefill, or a step of the generic kernel, as a function of the
// problem, the compute capability and SLUICE_CUDA_KERNEL. Problems are built by hand and spoilt in
// one thing each; no GPU is needed.
// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cuda/catalogues.h"
#include "cuda/chunk_forward/cut.h"
#include "cuda/chunk_forward/rows.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem, core::Tensor;

constexpr sluice_dtype kFloat32{2, 32}, kFloat16{2, 16}, kBfloat16{4, 16};

/// [1,T,heads,D], dense, at an address that the copy engine likes.
Tensor tokens(sluice_dtype dtype, int64_t T, int64_t heads, int64_t D) {
  Tensor t{};
  t.data = reinterpret_cast<void*>(uintptr_t{4096});
  t.device = {SLUICE_DEVICE_CUDA, 0};
  t.dtype = dtype;
  t.rank = 4;
  const int64_t shape[4] = {1, T, heads, D}, stride[4] = {T * heads * D, heads * D, D, 1};
  for (int axis = 0; axis < 4; ++axis) t.shape[axis] = shape[axis], t.stride[axis] = stride[axis];
  return t;
}

/// What the one-launch kernel is for.
DeltaRuleProblem prefill(sluice_dtype io = kBfloat16, int64_t K = 128, int64_t V = 128) {
  DeltaRuleProblem p;
  p.rows = {1, 100, 1, {}, 100};
  p.H = 2, p.HV = 4, p.r = 2, p.K = K, p.V = V;
  p.split = SLUICE_SPLIT_NEVER;
  p.q = p.k = tokens(io, 100, p.H, K);
  p.v = p.o = tokens(io, 100, p.HV, V);
  return p;
}

DeltaRuleProblem linear(sluice_dtype io = kBfloat16, int64_t K = 128, int64_t V = 128) {
  DeltaRuleProblem p = prefill(io, K, V);
  p.rule = SLUICE_RULE_LINEAR_ATTENTION;
  return p;
}

constexpr Kernel<DeltaRuleProblem> kSteps[] = {generic_kernel("recurrent_step.generic")};

Status plan(const DeltaRuleProblem& p, core::PlanFor purpose, int capability, KernelOverride kernel,
            core::Plan* plan) {
  Environment environment;
  environment.kernel = kernel;
  const bool step = p.op == SLUICE_OP_RECURRENT_STEP;
  return plan_by(step ? Catalogue<DeltaRuleProblem>(kSteps) : chunk_forward_catalogue(), p,
                 Machine{0, capability, 132, {}}, environment, purpose, plan);
}

/// Name of the kernel chosen, or the message of the refusal.
std::string chosen(const DeltaRuleProblem& p, int capability = 90,
                   KernelOverride kernel = KernelOverride::kAuto) {
  core::Plan found;
  const Status status = plan(p, core::PlanFor::kCall, capability, kernel, &found);
  if (!status.ok()) {
    EXPECT_EQ(status.code, Code::kUnsupported);
    return status.message;
  }
  const Tier tier = static_cast<const Kernel<DeltaRuleProblem>*>(found.entry)->tier;
  EXPECT_EQ(tier == Tier::kFast, std::string(found.kernel).find("sm_90a") != std::string::npos);
  return found.kernel;
}

/// Scratch bytes for tensors at any address.
size_t scratch(const DeltaRuleProblem& p, int capability = 90,
               KernelOverride kernel = KernelOverride::kAuto) {
  core::Plan found;
  EXPECT_TRUE(plan(p, core::PlanFor::kAnyAddress, capability, kernel, &found).ok());
  return found.workspace_bytes;
}

TEST(CudaSelection, FusedWhereItApplies) {
  EXPECT_EQ(chosen(prefill()), "cuda.chunk_forward.sm_90a.bf16.k128.v128");
  EXPECT_EQ(chosen(prefill(kBfloat16, 64, 64)), "cuda.chunk_forward.sm_90a.bf16.k64.v64");
  EXPECT_EQ(chosen(prefill(kFloat16, 64, 256)), "cuda.chunk_forward.sm_90a.fp16.k64.v256");
  EXPECT_EQ(chosen(prefill(kBfloat16, 128, 256)), "cuda.chunk_forward.sm_90a.bf16.k128.v256");
  EXPECT_EQ(chosen(prefill(kFloat16)), "cuda.chunk_forward.sm_90a.fp16.k128.v128");
}

TEST(CudaSelection, LinearAttentionHasItsOwnKernel) {
  EXPECT_EQ(chosen(linear()), "cuda.chunk_forward.sm_90a.linear.bf16.k128");
  EXPECT_EQ(chosen(linear(kFloat16, 64, 64)), "cuda.chunk_forward.sm_90a.linear.fp16.k64");
  // Items of 128 columns do not go into every V.
  EXPECT_EQ(chosen(linear(kFloat16, 64, 320)), "cuda.chunk_forward.sm_90a.linear.fp16.k64.columns");
  DeltaRuleProblem p = linear();
  p.split = SLUICE_SPLIT_COLUMNS;
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.sm_90a.linear.bf16.k128.columns");
  p.split = SLUICE_SPLIT_SEGMENTS, p.split_value = 2;
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.sm_90a.linear.bf16.k128.segments");
  EXPECT_EQ(chosen(p, 90, KernelOverride::kGeneric), "cuda.chunk_forward.generic");
  EXPECT_EQ(chosen(p, 80), "cuda.chunk_forward.generic");
}

/// What the name of a problem's kernel ends in, by its cut.
std::string suffix(const DeltaRuleProblem& p, const device::CutRequest& cut) {
  return kCutSuffixes[cut_suffix(cut, p.V)];
}

TEST(CudaSelection, LinearAttentionInClusters) {
  CutOverride asked;
  asked.cluster = 4;
  for (DeltaRuleProblem p : {linear(), linear(kFloat16, 64, 256)}) {
    p.split = SLUICE_SPLIT_AUTO;
    const device::CutRequest cut = choose_cut(p, {0, 90, 132, {}}, asked);
    EXPECT_EQ(suffix(p, cut), ".clusters");
    EXPECT_EQ(cut.cluster_ctas, 4);
  }
}

TEST(CudaSelection, LinearAttentionWithPrefixes) {
  DeltaRuleProblem p = linear();
  p.split = SLUICE_SPLIT_AUTO;
  CutOverride asked;
  asked.prefix = 2;
  const device::CutRequest cut = choose_cut(p, {0, 90, 132, {}}, asked);
  EXPECT_EQ(suffix(p, cut), ".prefix");
  EXPECT_EQ(cut.prefix_blocks, 2);
}

TEST(CudaSelection, PlansKeepTheirCut) {
  DeltaRuleProblem p = linear();
  p.split = SLUICE_SPLIT_AUTO;
  p.H = p.HV = 16, p.r = 1;
  core::Plan found;
  const auto plan_of = [&](int64_t T) {
    p.rows.T = p.rows.longest = T;
    const Machine h200{0, 90, 132, {66, 30, 17, 15}};
    EXPECT_TRUE(plan_by(chunk_forward_catalogue(), p, h200, {}, core::PlanFor::kCall, &found).ok());
    EXPECT_EQ(found.workspace_bytes, 0u);
    return found.kept<device::CutRequest>();
  };
  EXPECT_EQ(plan_of(8192).cluster_ctas, 6);
  EXPECT_STREQ(found.kernel, "cuda.chunk_forward.sm_90a.linear.bf16.k128.clusters");
  EXPECT_EQ(plan_of(1024).prefix_blocks, 1);
  EXPECT_STREQ(found.kernel, "cuda.chunk_forward.sm_90a.linear.bf16.k128.prefix");
}

TEST(CudaSelection, TheNameSaysHowSequencesAreSpread) {
  DeltaRuleProblem p = prefill();
  p.split = SLUICE_SPLIT_COLUMNS;
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.sm_90a.bf16.k128.v128.columns");
  p.split = SLUICE_SPLIT_SEGMENTS;
  p.split_value = 2;
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.sm_90a.bf16.k128.v128.segments");
  p = prefill(kFloat16, 64, 64);
  p.split = SLUICE_SPLIT_COLUMNS;
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.sm_90a.fp16.k64.v64");
}

TEST(CudaSelection, GenericOnEveryOtherGpu) {
  for (const int capability : {80, 86, 87, 89, 100, 103, 110, 120, 121}) {
    EXPECT_EQ(chosen(prefill(), capability), "cuda.chunk_forward.generic") << capability;
  }
  for (const int capability : {0, 61, 75}) {
    const std::string found =
        std::to_string(capability / 10) + "." + std::to_string(capability % 10);
    EXPECT_EQ(chosen(prefill(), capability), "chunk_forward: compute capability = " + found +
                                                 ", expected 8.0 or newer (CUDA kernels)");
  }
}

TEST(CudaSelection, StepsAreGeneric) {
  DeltaRuleProblem p = prefill();
  p.op = SLUICE_OP_RECURRENT_STEP;
  EXPECT_EQ(chosen(p), "cuda.recurrent_step.generic");
  EXPECT_EQ(chosen(p, 75),
            "recurrent_step: compute capability = 7.5, expected 8.0 or newer (CUDA kernels)");
}

struct Spoilt {
  const char* what;
  std::function<void(DeltaRuleProblem&)> spoil;
  const char* message;  ///< of the one-launch kernel, when it is asked for
};

TEST(CudaSelection, WhatTheOneLaunchKernelDoesNotTakeIsGeneric) {
  const Spoilt cases[] = {
      {"float32", [](DeltaRuleProblem& p) { p = prefill(kFloat32); },
       "chunk_forward: q.dtype, o.dtype = {2,32}, {2,32}, expected both bfloat16 or both float16 "
       "(one-launch CUDA kernel)"},
      {"other output", [](DeltaRuleProblem& p) { p.o.dtype = kFloat16; },
       "chunk_forward: q.dtype, o.dtype = {4,16}, {2,16}, expected both bfloat16 or both float16 "
       "(one-launch CUDA kernel)"},
      {"K", [](DeltaRuleProblem& p) { p = prefill(kBfloat16, 256, 128); },
       "chunk_forward: K, V = 256, 128, expected 64 or 128, and 64, 128 or 256 (one-launch CUDA "
       "kernel)"},
      {"V", [](DeltaRuleProblem& p) { p = prefill(kBfloat16, 128, 192); },
       "chunk_forward: K, V = 128, 192, expected 64 or 128, and 64, 128 or 256 (one-launch CUDA "
       "kernel)"},
      {"norm", [](DeltaRuleProblem& p) { p = linear(), p.qk_norm = SLUICE_QK_NORM_L2; },
       "chunk_forward: qk_norm = 1, expected 0 with rule 1 (one-launch CUDA kernel of "
       "LINEAR_ATTENTION)"},
      {"V of linear attention", [](DeltaRuleProblem& p) { p = linear(kBfloat16, 128, 96); },
       "chunk_forward: K, V = 128, 96, expected 64 or 128, and a multiple of 64 (one-launch CUDA "
       "kernel of LINEAR_ATTENTION)"},
      {"address", [](DeltaRuleProblem& p) { p.v.data = reinterpret_cast<void*>(uintptr_t{4104}); },
       "chunk_forward: v.data address mod 16 = 8, expected 0 (one-launch CUDA kernel)"},
      {"odd stride", [](DeltaRuleProblem& p) { p.k.stride[1] = 260; },
       "chunk_forward: k.stride[1] = 260, expected a positive multiple of 8 below 2^38 (one-launch "
       "CUDA kernel)"},
      {"broadcast", [](DeltaRuleProblem& p) { p.q.stride[2] = 0; },
       "chunk_forward: q.stride[2] = 0, expected a positive multiple of 8 below 2^38 (one-launch "
       "CUDA kernel)"},
      {"rows", [](DeltaRuleProblem& p) { p.rows.T = (int64_t{1} << 31) - 64; },
       "chunk_forward: T, N * HV = 2147483584, 4, expected below 2^31 - 64 and 2^30 (one-launch "
       "CUDA kernel)"}};
  for (const Spoilt& c : cases) {
    DeltaRuleProblem p = prefill();
    c.spoil(p);
    EXPECT_EQ(chosen(p), "cuda.chunk_forward.generic") << c.what;
    EXPECT_EQ(chosen(p, 90, KernelOverride::kFast), c.message) << c.what;
  }
}

TEST(CudaSelection, KeyWiseGatesHaveTheirKernel) {
  for (DeltaRuleProblem p : {prefill(), linear()}) {
    const bool linear = p.rule == SLUICE_RULE_LINEAR_ATTENTION;
    p.V = 128, p.v.shape[3] = p.o.shape[3] = 128;
    p.gate = {};
    p.key_gate = tokens(kFloat32, 100, p.HV, p.K);
    EXPECT_EQ(chosen(p), linear ? "cuda.chunk_forward.sm_90a.key.linear.bf16.k128"
                                : "cuda.chunk_forward.sm_90a.key.bf16.k128.v128");
    // Two chunks a head.
    EXPECT_GE(scratch(p), static_cast<size_t>(2 * p.HV * (388 * 128 + 16384)));
    EXPECT_EQ(chosen(p, 100), "cuda.chunk_forward.generic");
    p.key_gate.stride[1] += 2;
    EXPECT_EQ(chosen(p), "cuda.chunk_forward.generic");
    EXPECT_EQ(
        chosen(p, 90, KernelOverride::kFast),
        "chunk_forward: gate strides in bytes, expected multiples of 16 (one-launch CUDA kernel of "
        "key-wise gates)");
    p.op = SLUICE_OP_RECURRENT_STEP;
    EXPECT_EQ(chosen(p), "cuda.recurrent_step.generic");
  }
}

TEST(CudaSelection, UnusedStridesDoNotMatter) {
  DeltaRuleProblem p = prefill();
  p.q.stride[0] = 3;  // B = 1
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.sm_90a.bf16.k128.v128");
}

TEST(CudaSelection, OverridesAreKept) {
  EXPECT_EQ(chosen(prefill(), 90, KernelOverride::kGeneric), "cuda.chunk_forward.generic");
  EXPECT_EQ(chosen(prefill(), 90, KernelOverride::kFast),
            "cuda.chunk_forward.sm_90a.bf16.k128.v128");
  EXPECT_EQ(chosen(prefill(), 100, KernelOverride::kFast),
            "chunk_forward: compute capability = 10.0, expected 9.0 (one-launch CUDA kernel)");
}

TEST(CudaSelection, WidestKeys) {
  EXPECT_EQ(chosen(prefill(kFloat32, 512, 7)), "cuda.chunk_forward.generic");
  EXPECT_EQ(chosen(prefill(kFloat32, 8, 100000)), "cuda.chunk_forward.generic");
  EXPECT_EQ(chosen(prefill(kFloat32, 513, 7)),
            "chunk_forward: k.shape[3] = 513, expected at most 512 (CUDA kernels)");
}

TEST(CudaSelection, WorkspaceDoesNotDependOnAddresses) {
  DeltaRuleProblem p = prefill();
  p.split = SLUICE_SPLIT_SEGMENTS, p.split_value = 2;
  const size_t bytes = scratch(p);
  EXPECT_GT(bytes, 0u);
  p.v.data = reinterpret_cast<void*>(uintptr_t{2});
  EXPECT_EQ(chosen(p), "cuda.chunk_forward.generic");
  EXPECT_EQ(scratch(p), bytes);
  EXPECT_EQ(scratch(p, 90, KernelOverride::kGeneric), 0u);
  EXPECT_EQ(scratch(p, 89), 0u);
  p.q = p.k = tokens(kFloat32, 100, p.H, p.K);
  EXPECT_EQ(scratch(p), 0u);
}

TEST(CudaSelection, OverridesByName) {
  for (const char* name : {static_cast<const char*>(nullptr), "", "auto"}) {
    const Environment parsed = parse_environment(name, nullptr, nullptr);
    EXPECT_TRUE(parsed.status.ok());
    EXPECT_EQ(parsed.kernel, KernelOverride::kAuto);
  }
  EXPECT_EQ(parse_environment("fused", nullptr, nullptr).kernel, KernelOverride::kFast);
  EXPECT_EQ(parse_environment("generic", nullptr, nullptr).kernel, KernelOverride::kGeneric);
  const Status status = parse_environment("fastest", nullptr, nullptr).status;
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_STREQ(status.message,
               "cuda: SLUICE_CUDA_KERNEL = fastest, expected auto, fused or generic");
}

}  // namespace
}  // namespace sluice::cuda
