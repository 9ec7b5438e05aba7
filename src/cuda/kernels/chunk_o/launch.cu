// Launches the kernel of outputs from given states: encodes its tensor maps, picks the instance.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_o/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/kernels/chunk_o/config.h"

namespace sluice::cuda::chunk_o {
namespace {

bool encode_maps(OutputParams& p, const MappedTensors& tensors, uint32_t columns) noexcept {
  const auto K = static_cast<uint32_t>(p.stage.K);
  return tile::encode_token_map(&p.q, tensors.q, 64, K / 64) &&
         tile::encode_token_map(&p.k, tensors.k, 64, K / 64) &&
         tile::encode_token_map(&p.v, tensors.v, 64, columns / 64) &&
         tile::encode_token_map(&p.o, tensors.o, 64, columns / 64) &&
         tile::encode_token_map(&p.h, tensors.h, K, columns / 64);
}

}  // namespace

int load_kernels() noexcept {
  int error = 0;
  for (const int columns : {64, 128}) {
    for (const bool wide : {false, true}) {
      for (const auto get : {bf16, fp16}) {
        if (error == 0) error = load_kernel(get(wide, columns).kernel);
      }
    }
  }
  return error;
}

void launch(const device::StageParams& params, const MappedTensors& tensors, int32_t h_per_batch,
            Launcher& launcher) noexcept {
  const int columns = columns_of(params.V);
  const int64_t slots = device::chunk_slots(params);
  const int64_t items = slots * params.HV * (params.V / columns);
  if (items == 0 || params.T == 0) return;
  OutputParams p{};
  p.stage = params;
  p.h_per_batch = h_per_batch;
  if (!encode_maps(p, tensors, static_cast<uint32_t>(columns))) {
    return launcher.note(cudaErrorInvalidValue);
  }
  const Instance& instance = (tensors.q.is_bf16 ? bf16 : fp16)(params.K == 128, columns);
  const auto ctas =
      static_cast<unsigned>(std::min<int64_t>(items, launcher.machine().multiprocessors));
  launcher(instance.kernel, {{ctas}, instance.threads, instance.shared_bytes}, p, items);
}

}  // namespace sluice::cuda::chunk_o
