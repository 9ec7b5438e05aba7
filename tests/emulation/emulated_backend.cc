// The fused prefill kernel as a CUDA backend of its own: CTAs run one after the other on the CPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "core/backend.hpp"
#include "cuda/kernels/chunk_forward/kernel.cuh"
#include "cuda/lower.h"
#include "cuda/select.h"
#include "emulated_backend.hpp"

namespace sluice::cuda::chunk_forward {
alignas(1024) uint8_t dynamic_shared[emulation::kSharedBytes];
}

namespace sluice::cuda {

uint64_t emulation_seed = 1;

namespace {

using chunk_forward::ChunkForwardParams, chunk_forward::Config, chunk_forward::Tiles;

CUtensorMap emulated_map(const tile::TokenTensor& tensor, uint32_t column_blocks) {
  const ptx::EmulatedMap map{static_cast<uint8_t*>(tensor.data),
                             tile::token_map(tensor, 64, column_blocks)};
  CUtensorMap out{};
  std::memcpy(static_cast<void*>(&out), &map, sizeof map);
  return out;
}

template <class C>
std::string run(const ChunkForwardParams& p) {
  const auto items = static_cast<unsigned>(p.N * p.HV * (p.V / C::kV)), ctas = std::min(items, 3u);
  for (unsigned cta = 0; cta < ctas; ++cta) {
    std::fill_n(chunk_forward::dynamic_shared, emulation::kSharedBytes, uint8_t{0xFF});
    std::string trouble = emulation::run_cta(cta, ctas, C::kThreads, emulation_seed + cta,
                                             [&] { chunk_forward::chunk_forward_kernel<C>(p); });
    if (!trouble.empty()) return trouble;
  }
  return "";
}

template <class Io, bool kL2Norm>
std::string run_sizes(const ChunkForwardParams& p) {
  const bool narrow = chunk_forward::item_columns(p.V) == 64;
  if (p.K == 128) {
    return narrow ? run<Config<Io, kL2Norm, 128, 64>>(p) : run<Config<Io, kL2Norm, 128, 128>>(p);
  }
  return narrow ? run<Config<Io, kL2Norm, 64, 64>>(p) : run<Config<Io, kL2Norm, 64, 128>>(p);
}

template <class Io>
std::string run_type(const ChunkForwardParams& p, bool l2norm) {
  return l2norm ? run_sizes<Io, true>(p) : run_sizes<Io, false>(p);
}

Status choose(const core::DeltaRuleProblem& p, core::KernelName* name) noexcept {
  KernelChoice choice;
  const Status status = choose_kernel(p, kHopperCapability, KernelWish::kFused, &choice);
  *name = "cuda.chunk_forward.emulated";
  return status;
}

size_t workspace(const core::DeltaRuleProblem&) noexcept { return 0; }

Status run_delta_rule(const core::DeltaRuleProblem& problem, sluice_workspace, void*) noexcept {
  ChunkForwardParams p = lower_fused(problem);
  const Tiles tiles = lower_tiles(problem);
  const auto k_blocks = static_cast<uint32_t>(p.K) / 64,
             v_blocks = static_cast<uint32_t>(chunk_forward::item_columns(p.V)) / 64;
  p.q = emulated_map(tiles.q, k_blocks);
  p.k = emulated_map(tiles.k, k_blocks);
  p.v = emulated_map(tiles.v, v_blocks);
  p.o = emulated_map(tiles.o, 1);
  p.o_data = tiles.o.data;
  p.o_batch_stride = tiles.o.batch_stride;
  p.o_token_stride = tiles.o.token_stride;
  p.o_head_stride = tiles.o.head_stride;
  const std::string trouble = tiles.q.is_bf16 ? run_type<__nv_bfloat16>(p, tiles.l2norm)
                                              : run_type<__half>(p, tiles.l2norm);
  if (trouble.empty()) return ok_status();
  return Status::failure(Code::kDeviceError, "chunk_forward: emulation = %s", trouble.c_str());
}

core::Backend make_backend() noexcept {
  core::Backend backend{};
  backend.id = SLUICE_IMPL_CUDA;
  backend.name = "cuda";
  backend.description = "the fused prefill kernel, emulated";
  backend.requirement = "nothing";
  backend.device_type = SLUICE_DEVICE_CUDA;
  backend.available = []() noexcept { return true; };
  backend.chunk_forward = {choose, workspace, run_delta_rule};
  return backend;
}

}  // namespace

const core::Backend& backend() noexcept {
  static const core::Backend instance = make_backend();
  return instance;
}

}  // namespace sluice::cuda
