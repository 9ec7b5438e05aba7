// Says what a launch ahead of a prefill's passes prepares of tokens, and how the passes find it.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARED_H_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARED_H_

#include "cuda/device/prefill_params.h"

namespace sluice::cuda::chunk_forward {

using device::PrefillParams, device::TokenRows;

/// q and k as given, [B,T,H,K].
struct KeyRows {
  TokenRows q, k;
};

inline constexpr int kPreparedThreads = 128;

/// CTAs for norms: blocks of 64 tokens of each head of k and q.
SLUICE_HOST_DEVICE int64_t norm_items(const PrefillParams& p) {
  return p.prepared.norms != nullptr ? (p.token_rows() + 63) / 64 * 2 * p.H : 0;
}
/// All CTAs; numbers come in blocks of 128 tokens of each value head. BOUND: a CTA stands for 8 KB of q,
/// k or v at least, so that no memory has rows for 2^31 of them.
SLUICE_HOST_DEVICE int64_t prepared_items(const PrefillParams& p) {
  const bool numbers = p.prepared.numbers != nullptr;
  return norm_items(p) + (numbers ? (p.token_rows() + 127) / 128 * p.HV : 0);
}

/// From then on gates and strengths are those that the launch leaves.
SLUICE_HOST_DEVICE void read_prepared(PrefillParams* p) {
  if (p->prepared.numbers == nullptr) return;
  const int64_t head = p->token_rows() * int64_t{sizeof(float)};
  const auto numbers = [&](const float* data) {
    return device::TokenScalar{data, p->T * int64_t{sizeof(float)}, sizeof(float), p->r * head,
                               head, device::Number::kFloat32};
  };
  if (p->gate.data != nullptr) {
    p->gate = numbers(p->prepared.numbers);
    p->gate_form = device::GateForm::kLog;
  }
  if (p->beta.data != nullptr) {
    p->beta = numbers(p->prepared.numbers + p->HV * p->token_rows());
    p->beta_form = device::BetaForm::kValue;
    p->beta_factor = 1.0f;
  }
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_PREPARED_H_
