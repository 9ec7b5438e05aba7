// Runs the passes of the emulated prefill backend for key-wise gates.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "cuda/kernels/chunk_forward/key_kernel.cuh"
#include "emulated_passes.hpp"

namespace sluice::cuda::prefill_passes {

using device::PrefillParams;

namespace {

template <class Io, bool kDelta, bool kOutput>
void run_type(Launches& launch, const PrefillParams& p, const Pass& pass) {
  const auto run = [&]<int kK, int kV>(std::integer_sequence<int, kK, kV>) {
    using C = chunk_forward::KeyConfig<Io, kDelta, kK, kV, kOutput>;
    launch(pass.ctas(), C::kThreads, [&] { chunk_forward::key_forward_kernel<C>(p); });
  };
  if (p.K == 128 && pass.columns == 128) run(std::integer_sequence<int, 128, 128>());
  if (p.K == 128 && pass.columns == 64) run(std::integer_sequence<int, 128, 64>());
  if (p.K == 64 && pass.columns == 128 && kOutput) run(std::integer_sequence<int, 64, 128>());
  if (p.K == 64 && pass.columns == 64) run(std::integer_sequence<int, 64, 64>());
}

}  // namespace

void run_keys(Launches& launch, const PrefillParams& p, const Pass& pass) {
  const auto of = [&]<class Io, bool kDelta>(Io, std::bool_constant<kDelta>) {
    pass.output ? run_type<Io, kDelta, true>(launch, p, pass)
                : run_type<Io, kDelta, false>(launch, p, pass);
  };
  const auto of_type = [&](auto io) {
    p.key.delta ? of(io, std::true_type()) : of(io, std::false_type());
  };
  pass.bf16 ? of_type(__nv_bfloat16{}) : of_type(__half{});
}

}  // namespace sluice::cuda::prefill_passes
