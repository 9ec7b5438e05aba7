// Launches Hopper's kernel of chunk_h: encodes its tensor maps and picks the instance.
// SPDX-License-Identifier: Apache-2.0
#include "cuda/kernels/chunk_h/launch.h"

#include "cuda/kernels/chunk_h/config.h"

namespace sluice::cuda::chunk_h {
namespace {

bool encode_maps(StatesParams& p, const MappedTensors& tensors) noexcept {
  const auto K = static_cast<uint32_t>(p.stage.K);
  return tile::encode_token_map(&p.k, tensors.k, 64, K / 64) &&
         tile::encode_token_map(&p.w, tensors.w, 64, K / 64) &&
         tile::encode_token_map(&p.u, tensors.u, 64, 1) &&
         (tensors.v_new.data == nullptr ||
          tile::encode_token_map(&p.v_new, tensors.v_new, 64, 1)) &&
         (tensors.h.data == nullptr || tile::encode_token_map(&p.h, tensors.h, K, 1));
}

}  // namespace

int load_kernels() noexcept {
  KernelLoader load;
  load(bf16(), fp16());
  return load.error();
}

void launch(const device::StageParams& params, const MappedTensors& tensors, int32_t h_per_batch,
            Launcher& launcher) noexcept {
  const int multiprocessors = launcher.machine().multiprocessors;
  const int columns = columns_of(params, multiprocessors);
  const int64_t items = params.N * params.HV * (params.V / columns);
  if (items == 0) return;
  StatesParams p{};
  p.stage = params;
  p.h_per_batch = h_per_batch;
  if (params.T > 0 && !encode_maps(p, tensors)) return launcher.note_invalid();
  const InstancesBySize& instances = tensors.k.is_bf16 ? bf16() : fp16();
  launcher(instances[params.K / 128][columns / 128], grid_of(items, multiprocessors), p, items);
}

}  // namespace sluice::cuda::chunk_h
