// Launches the kernel of outputs from given states: encodes its tensor maps, picks the instance.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_o/launch.h"

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
  KernelLoader load;
  load(bf16(), fp16());
  return load.error();
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
    return launcher.note_invalid();
  }
  const InstancesBySize& instances = tensors.q.is_bf16 ? bf16() : fp16();
  launcher(instances[params.K / 128][columns / 128],
           grid_of(items, launcher.machine().multiprocessors), p, items);
}

}  // namespace sluice::cuda::chunk_o
