// Runs the preparation of chunks with key-wise gates of the emulated prefill backend.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/kernels/chunk_forward/key_prepare.cuh"
#include "emulated_passes.hpp"

namespace sluice::cuda::prefill_passes {

using device::PrefillParams;

namespace {

template <class Io, bool kL2Norm, int kK>
void prepare(Launches& launch, const PrefillParams& p) {
  using C = chunk_forward::KeyPrepareConfig<Io, kL2Norm, kK>;
  const int64_t items = device::key_records(p.N, p.T, p.cu_seqlens.data != nullptr) * p.HV;
  launch(static_cast<unsigned>(std::min<int64_t>(items, kMostCtas)), C::kThreads,
         [&] { chunk_forward::key_prepare_kernel<C>(p); });
}

}  // namespace

void run_key_preparation(Launches& launch, const PrefillParams& p, bool bf16, bool l2norm) {
  const auto of = [&]<class Io, bool kL2Norm>(Io, std::bool_constant<kL2Norm>) {
    p.K == 128 ? prepare<Io, kL2Norm, 128>(launch, p) : prepare<Io, kL2Norm, 64>(launch, p);
  };
  const auto of_type = [&](auto io) {
    l2norm ? of(io, std::true_type()) : of(io, std::false_type());
  };
  bf16 ? of_type(__nv_bfloat16{}) : of_type(__half{});
}

}  // namespace sluice::cuda::prefill_passes
