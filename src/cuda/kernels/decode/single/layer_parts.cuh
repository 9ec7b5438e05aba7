// Convolves and normalises in layer steps of single tokens: layer.cuh but for the delta rule.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_PARTS_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_PARTS_CUH_

#include "cuda/kernels/decode/conv_pairs.cuh"
#include "cuda/kernels/decode/single/tile.cuh"
#include "cuda/kernels/decode/step.cuh"

namespace sluice::cuda::decode {

/// Pairs of channels of a head; of q, k and v.
inline constexpr uint32_t kHeadPairs = kSingleSize / 2, kPairs = 3 * kHeadPairs;

/// What a CTA and a thread have to do: a value head, and its place in [.., HV/r, r, ..].
template <class C>
struct LayerPlace {
  uint32_t sequence, key_head, head, group, member;
  uint32_t warp, lane;
  uint32_t row, column;  ///< of the head's state, the lane's first ones

  __device__ __forceinline__ uint32_t token() const { return sequence; }
  __device__ __forceinline__ explicit LayerPlace(const SingleLayerParams& p)
      : sequence(blockIdx.z),
        key_head(blockIdx.y),
        head(key_head * p.r + blockIdx.x),
        group(key_head),
        member(blockIdx.x),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        row(warp * C::kRows),
        column(4 * lane) {
    if (!p.head_map_cyclic) return;
    head = key_head + blockIdx.x * p.H;
    group = head / p.r, member = head % p.r;
  }
};

/// Pair `index` of [q, k, v].
struct LayerPair {
  uint32_t part, channel;
  const char* x;

  template <class C>
  __device__ __forceinline__ LayerPair(const SingleLayerParams& p, const LayerPlace<C>& at,
                                       uint32_t index)
      : part(index / kHeadPairs) {
    const uint32_t column = 2 * (index % kHeadPairs);
    const bool is_v = part == 2;
    channel = (is_v ? at.head : at.key_head) * kSingleSize + column;
    x = single_row(p.part[part].x, at.sequence, is_v ? at.group : at.key_head) +
        2 * (is_v ? at.member * kSingleSize + column : column);
  }
  __device__ __forceinline__ PairState state(const SingleLayerParams& p, uint32_t slot) const {
    return place(p.part[part].initial, p, slot, p.initial_slot_bytes, p.initial_step);
  }
  __device__ __forceinline__ PairState new_state(const SingleLayerParams& p, uint32_t slot) const {
    return place(p.part[part].final, p, slot, p.final_slot_bytes, p.final_step);
  }

 private:
  __device__ __forceinline__ PairState place(char* data, const SingleLayerParams& p, uint32_t slot,
                                             uint32_t slot_bytes, uint32_t step) const {
    const char* const first = moved(moved(data, slot, slot_bytes), channel, p.channel_bytes);
    return {const_cast<char*>(first), step};
  }
};

/// Asks the L2 for the pair's weights and state.
__device__ __forceinline__ void prefetch_pair(const SingleLayerParams& p, const LayerPair& pair,
                                              int slot) {
  ptx::prefetch_sector(p.part[pair.part].weight + 8 * pair.channel);
  const PairState state = pair.state(p, static_cast<uint32_t>(slot));
  ptx::prefetch_sector(state.word(0));
  if (p.columns_inside) return;  // the next pairs' words ask for the rest
  ptx::prefetch_sector(state.word(1));
  ptx::prefetch_sector(state.word(2));
  if (p.L == kMaxWidth) ptx::prefetch_sector(state.word(3));
}

__device__ __forceinline__ void request_pair(const SingleLayerParams& p, const LayerPair& pair,
                                             int slot, PairInputs& in) {
  in.input = __ldg(reinterpret_cast<const uint32_t*>(pair.x));
  request_words(p.part[pair.part].weight + 8 * pair.channel, in.weight);
  pair.state(p, static_cast<uint32_t>(slot)).request(p.L, in.words);
}

/// The pair's numbers, convolved, to `row`, and its new state.
template <class T>
__device__ __forceinline__ uint4 convolve_pair(const SingleLayerParams& p, const PairInputs& in,
                                               float* row) {
  uint32_t columns[kMaxWidth + 1];
  device::pair_columns(p.L, p.columns_inside, in.words, columns);
  columns[kMaxWidth] = in.input;
  float a = 0.0f, b = 0.0f;
  weigh_columns<T>(in.weight, columns, a, b);
  *reinterpret_cast<float2*>(row) = make_float2(device::silu(a), device::silu(b));
  return device::pair_words(p.L, p.columns_inside, columns);
}

/// Four columns of the norm's inputs, on their way.
struct LayerNormInputs {
  uint32_t z[2];
  RawNumber weight[4];
};

template <class C>
__device__ __forceinline__ char* head_row(const SingleRows& rows, uint32_t member_bytes,
                                          const LayerPlace<C>& at) {
  const char* const group = single_row(rows, at.sequence, at.group);
  return const_cast<char*>(moved(group, at.member, member_bytes)) + 2 * at.column;
}

template <class C>
__device__ __forceinline__ void request_norm(const SingleLayerParams& p, const LayerPlace<C>& at,
                                             LayerNormInputs& in) {
  request_words(head_row(p.z, p.z_member_bytes, at), in.z);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    in.weight[i] = request_number(p.norm_weight, at.column + i, p.norm_weight_number);
  }
}

/// weight act(z) to shared memory.
template <class T>
__device__ __forceinline__ void settle_norm(const SingleLayerParams& p, const LayerNormInputs& in,
                                            float* buffered) {
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float z = number_in<T>(in.z[i / 2], i % 2);
    x[i] = number_of(p.norm_weight_number, in.weight[i]) *
           (p.silu ? device::silu(z) : device::sigmoid(z));
  }
  write_four(buffered, x);
}

template <class T>
__device__ __forceinline__ void write_numbers(char* row, const float (&x)[4]) {
  using Io = tile::Packed<T>;
  *reinterpret_cast<uint2*>(row) = make_uint2(Io::pack(x[0], x[1]), Io::pack(x[2], x[3]));
}

template <class T>
__device__ __forceinline__ float rounded_to(float x) {
  return tile::Packed<T>::first(tile::Packed<T>::pack(x, 0.0f));
}

/// Four columns of out, and of the core output where that is asked for.
template <class T, class C>
__device__ __forceinline__ void write_outputs(const SingleLayerParams& p, const LayerPlace<C>& at,
                                              const float (&out)[4], const float (&core)[4]) {
  write_numbers<T>(head_row(p.out, p.out_member_bytes, at), out);
  if (p.o.data == nullptr) return;
  write_numbers<T>(const_cast<char*>(single_row(p.o, at.sequence, at.head)) + 2 * at.column, core);
}

/// The head's outputs, by a warp whose lanes have four columns of o each. The order of sums is
/// norm_factor()'s.
template <class T, class C>
__device__ __forceinline__ void write_normed(const SingleLayerParams& p, const LayerPlace<C>& at,
                                             const float* buffered, const float (&o)[4]) {
  float x[4], gate[4], sum[1] = {0.0f};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = p.round_input ? rounded_to<T>(o[i]) : o[i];
    sum[0] = fmaf(x[i], x[i], sum[0]);
  }
  ptx::sum_over_lanes<0, 5>(sum);
  const float factor = rsqrtf(__fdividef(sum[0], static_cast<float>(kSingleSize)) + p.eps);
  read_four(buffered, gate);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] *= factor;
    if (p.round_normed) x[i] = rounded_to<T>(x[i]);
    x[i] *= gate[i];
  }
  write_outputs<T>(p, at, x, o);
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_LAYER_PARTS_CUH_
