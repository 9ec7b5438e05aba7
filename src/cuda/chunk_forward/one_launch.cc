// Says which problems the prefill kernels of Hopper GPUs take, what their instances are called and
// how they cut sequences.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/rows.h"

#include <array>

#include "cuda/chunk_forward/cut.h"
#include "cuda/chunk_forward/launch.h"
#include "cuda/chunk_forward/lengths.h"
#include "cuda/lower_views.h"

namespace sluice::cuda {
namespace {

using core::Tensor, core::DeltaRuleProblem;
using ll = long long;

constexpr int64_t kInt32Limit = int64_t{1} << 31;

constexpr const char* kOp = "chunk_forward";
constexpr const char* kOneLaunch = "one-launch CUDA kernel";
constexpr const char* kOfKeyGates = "one-launch CUDA kernel of key-wise gates";

Status check_one_launch_gpu(const Machine& machine) noexcept {
  return check_hopper(kOp, machine, kOneLaunch);
}

Status check_one_launch_sizes(const DeltaRuleProblem& p) noexcept {
  const bool is_16bit =
      core::same(p.q.dtype, core::kBFloat16) || core::same(p.q.dtype, core::kFloat16);
  if (!is_16bit || p.o.dtype.code != p.q.dtype.code || p.o.dtype.bits != 16) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: q.dtype, o.dtype = {%d,%d}, {%d,%d}, expected both "
                           "bfloat16 or both float16 (one-launch CUDA kernel)",
                           p.q.dtype.code, p.q.dtype.bits, p.o.dtype.code, p.o.dtype.bits);
  }
  if (p.rows.T >= kInt32Limit - 64 || p.rows.N * p.HV >= kInt32Limit / 2) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: T, N * HV = %lld, %lld, expected below 2^31 - 64 and "
                           "2^30 (one-launch CUDA kernel)",
                           static_cast<ll>(p.rows.T), static_cast<ll>(p.rows.N) * p.HV);
  }
  return ok_status();
}

struct NamedView {
  const char* name;
  const Tensor* tensor;
};

/// The views that the copy engine moves.
std::array<NamedView, 4> tiles_of(const DeltaRuleProblem& p) noexcept {
  return {NamedView{"q", &p.q}, {"k", &p.k}, {"v", &p.v}, {"o", &p.o}};
}

/// WHY 8: the copy engine wants strides that are multiples of 16 bytes.
Status check_strides(const DeltaRuleProblem& p) noexcept {
  for (const auto& [name, t] : tiles_of(p)) {
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t stride = t->stride[axis];
      const bool fits = stride > 0 && stride % 8 == 0 && stride < kInt32Limit * 128;
      if (t->shape[axis] <= 1 || fits) continue;
      return Status::failure(Code::kUnsupported,
                             "chunk_forward: %s.stride[%d] = %lld, expected a positive multiple of "
                             "8 below 2^38 (one-launch CUDA kernel)",
                             name, axis, static_cast<ll>(stride));
    }
  }
  return ok_status();
}

/// ... and addresses.
Status accepts_addresses(const DeltaRuleProblem& p) noexcept {
  for (const auto& [name, t] : tiles_of(p)) {
    if (const Status s = check_address(kOp, name, *t, 16, kOneLaunch); !s.ok()) return s;
  }
  return ok_status();
}

/// Sizes and strides of the gated delta rule.
Status check_gated_sizes(const DeltaRuleProblem& p) noexcept {
  if ((p.K != 64 && p.K != 128) || (p.V != 64 && p.V != 128 && p.V != 256)) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: K, V = %lld, %lld, expected 64 or 128, and 64, 128 or "
                           "256 (one-launch CUDA kernel)",
                           static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  if (const Status status = check_one_launch_sizes(p); !status.ok()) return status;
  return check_strides(p);
}

Status accepts_gated_delta(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (is_linear(p) || core::present(p.key_gate)) return left_to_others();
  if (const Status status = check_one_launch_gpu(machine); !status.ok()) return status;
  return check_gated_sizes(p);
}

// WHY any multiple of 64 for V: work items have 64 or 128 columns, of as many as there are.
Status accepts_linear(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (!is_linear(p) || core::present(p.key_gate)) return left_to_others();
  if (const Status status = check_one_launch_gpu(machine); !status.ok()) return status;
  if (p.qk_norm != SLUICE_QK_NORM_NONE) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: qk_norm = %d, expected 0 with rule 1 (one-launch CUDA "
                           "kernel of LINEAR_ATTENTION)",
                           static_cast<int>(p.qk_norm));
  }
  if ((p.K != 64 && p.K != 128) || p.V % 64 != 0 || p.V <= 0) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: K, V = %lld, %lld, expected 64 or 128, and a multiple "
                           "of 64 (one-launch CUDA kernel of LINEAR_ATTENTION)",
                           static_cast<ll>(p.K), static_cast<ll>(p.V));
  }
  if (const Status status = check_one_launch_sizes(p); !status.ok()) return status;
  return check_strides(p);
}

Status accepts_key_gates(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (!core::present(p.key_gate)) return left_to_others();
  if (const Status status = check_one_launch_gpu(machine); !status.ok()) return status;
  if (const Status status = check_gated_sizes(p); !status.ok()) return status;
  if (!has_packed_strides(p.key_gate)) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: gate strides in bytes, expected multiples of 16 "
                           "(one-launch CUDA kernel of key-wise gates)");
  }
  // BOUND: CTAs of the preparation are an int32.
  if (key_records(p) * p.HV >= kInt32Limit) {
    return Status::failure(Code::kUnsupported,
                           "chunk_forward: chunks * HV = %lld, expected below 2^31 "
                           "(one-launch CUDA kernel of key-wise gates)",
                           static_cast<ll>(key_records(p)) * p.HV);
  }
  return ok_status();
}

Status accepts_key_addresses(const DeltaRuleProblem& p) noexcept {
  if (const Status status = accepts_addresses(p); !status.ok()) return status;
  return check_address(kOp, "gate", p.key_gate, 16, kOfKeyGates);
}

constexpr const char* kSizes[] = {"k64.v64",  "k64.v128",  "k64.v256",
                                  "k128.v64", "k128.v128", "k128.v256"};
constexpr const char* kKeySizes[] = {"k64", "k128"};  ///< of linear attention, which takes any V
constexpr const char* kGates[] = {"", "key."};
constexpr const char* kLinearGates[] = {"linear.", "key.linear."};
constexpr NameTable kDeltaNames("cuda.chunk_forward.sm_90a.", kGates, kTypeWords, kSizes,
                                kCutSuffixes);
constexpr NameTable kLinearNames("cuda.chunk_forward.sm_90a.", kLinearGates, kTypeWords, kKeySizes,
                                 kCutSuffixes);

core::KernelName instance_name(const DeltaRuleProblem& p, const device::CutRequest& cut) noexcept {
  const int type = type_index(p.q.dtype), suffix = cut_suffix(cut, p.V);
  const bool key_gates = core::present(p.key_gate);
  if (is_linear(p)) return kLinearNames.at(key_gates, type, p.K / 128, suffix);
  return kDeltaNames.at(key_gates, type, p.K / 128 * 3 + p.V / 128, suffix);
}

/// Keeps the cut for launch_one_launch().
Status plan_prefill(const DeltaRuleProblem& p, const Machine& machine,
                    const Environment& environment, core::Plan* plan) noexcept {
  const device::CutRequest cut = choose_cut(p, machine, environment.cut);
  plan->kernel = instance_name(p, cut);
  plan->workspace_bytes = prefill_workspace(p, cut);
  plan->keep(cut);
  return ok_status();
}

/// In the order of their rules: one of them takes a problem, if any.
constexpr Kernel<DeltaRuleProblem> kKernels[] = {
    {"chunk_forward.gated_delta",
     "gated delta rule, K of 64 or 128, V of 64, 128 or 256, bfloat16 or float16, 16-byte aligned "
     "rows, compute capability 9.0",
     Tier::kFast, accepts_gated_delta, accepts_addresses, plan_prefill, launch_one_launch,
     load_on_hopper<prefill::load_gated_delta>},
    {"chunk_forward.linear_attention",
     "linear attention without qk_norm, K of 64 or 128, V any multiple of 64, otherwise as "
     "gated_delta",
     Tier::kFast, accepts_linear, accepts_addresses, plan_prefill, launch_one_launch,
     load_on_hopper<prefill::load_linear_attention>},
    {"chunk_forward.key_gates",
     "key-wise gates in either rule, otherwise as gated_delta; gates of 16-byte aligned rows",
     Tier::kFast, accepts_key_gates, accepts_key_addresses, plan_prefill, launch_one_launch,
     load_on_hopper<prefill::load_key_gates>}};

}  // namespace

Catalogue<DeltaRuleProblem> one_launch_kernels() noexcept { return kKernels; }

}  // namespace sluice::cuda
