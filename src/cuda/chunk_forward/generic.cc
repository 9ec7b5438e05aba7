// Says what the generic kernel takes and what its plans are called.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/chunk_forward/rows.h"

#include "cuda/kernels/generic/config.h"

namespace sluice::cuda {
namespace {

using core::DeltaRuleProblem;

const char* op_name(const DeltaRuleProblem& p) noexcept {
  return p.op == SLUICE_OP_CHUNK_FORWARD ? "chunk_forward" : "recurrent_step";
}

}  // namespace

Status accepts_generic(const DeltaRuleProblem& p, const Machine& machine) noexcept {
  if (const Status status = check_capability(op_name(p), machine); !status.ok()) return status;
  return check_at_most(op_name(p), "k.shape[3]", p.K, generic::kMaxK);
}

Status plan_generic(const DeltaRuleProblem& p, const Machine&, const Environment&,
                    core::Plan* plan) noexcept {
  plan->kernel = p.op == SLUICE_OP_CHUNK_FORWARD ? "cuda.chunk_forward.generic"
                                                 : "cuda.recurrent_step.generic";
  plan->workspace_bytes = 0;
  return ok_status();
}

}  // namespace sluice::cuda
