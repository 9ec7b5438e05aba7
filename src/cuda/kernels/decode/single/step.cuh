// Steps one token of every sequence, K = V = 128, tokens of 16 bits: what models decode with.
//
// Math      step.cuh's, in the same order: the same bits. Where rows have gates of their own:
//           u = S^T (alpha o k), w = S^T (alpha o q), S <- diag(alpha) S + k delta^T.
// Roles     a tile is all rows and some columns of a value head; C::kWarps warps have its rows, in
//           equal parts and in order, a lane C::kRows rows of four columns. Of [V,K] a warp has all
//           rows of 16 columns, a lane four rows: no sum leaves the warp.
// Pipeline  read the slot as it may be -> (ask the L2 for the state) -> wait for earlier launches
//           -> request slots, tokens, gates and that slot's state at once -> factors, while the
//           state comes -> the slot was another one: request again -> sums -> (barrier) -> update
//           -> store
// Memory    no token buffer: every lane reads its rows of q and k, its columns of v.
// Floor     state read and written once: 128 KiB per (sequence, value head) in float32.
// PERF the kernel for all cases executes 640 instructions ahead of its first request of a state,
// and waits for the slot before. Here sizes are constants, and what is rare is not in the way.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_DECODE_SINGLE_STEP_CUH_
#define SLUICE_CUDA_KERNELS_DECODE_SINGLE_STEP_CUH_

#include "cuda/kernels/decode/single/row_gates.cuh"
#include "cuda/kernels/decode/single/tile.cuh"
#include "cuda/kernels/decode/step.cuh"

namespace sluice::cuda::decode {

/// A block of four rows of k and q, times their decays where rows have gates of their own.
template <class C, class Token>
__device__ __forceinline__ void decayed_block(Token& token, int block, float (&k)[4],
                                              float (&q)[4]) {
  token.block_of_k(block, k);
  token.block_of_q(block, q);
  if constexpr (C::kKeyGates) {
    float alpha[4];
    token.block_of_alpha(block, alpha);
#pragma unroll
    for (int m = 0; m < 4; ++m) k[m] *= alpha[m], q[m] *= alpha[m];
  }
}

/// S^T k and S^T q over kBlocks blocks of four rows from block kFirst on; step.cuh's order.
/// @param tile SingleTile, or StreamTile
/// @param token has the lane's rows of k and q in blocks of four
template <class C, int kFirst, int kBlocks, class Tile, class Token>
__device__ __forceinline__ void sum_blocks(Tile& tile, Token& token, float (&with_k)[4],
                                           float (&with_q)[4]) {
  if constexpr (kBlocks == 1) {
    float k[4], q[4];
    decayed_block<C>(token, kFirst, k, q);
#pragma unroll
    for (int i = 0; i < 4; ++i) with_k[i] = with_q[i] = 0.0f;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      float row[4];
      tile.get(4 * kFirst + m, row);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        with_k[i] = fmaf(row[i], k[m], with_k[i]);
        with_q[i] = fmaf(row[i], q[m], with_q[i]);
      }
    }
  } else {
    float more_k[4], more_q[4];
    sum_blocks<C, kFirst, kBlocks / 2>(tile, token, with_k, with_q);
    sum_blocks<C, kFirst + kBlocks / 2, kBlocks / 2>(tile, token, more_k, more_q);
    add_four(with_k, more_k);
    add_four(with_q, more_q);
  }
}

/// k.k, q.q and k.q over blocks of the lane's rows; one place is not used.
template <class C, int kFirst, int kBlocks>
__device__ __forceinline__ void multiply_rows(SingleToken<C>& token, float (&sums)[4]) {
  if constexpr (kBlocks == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = 0.0f;
#pragma unroll
    for (int m = 4 * kFirst; m < 4 * kFirst + 4; ++m) {
      const float k = token.k_of(m), q = token.q_of(m);
      sums[0] = fmaf(k, k, sums[0]);
      sums[1] = fmaf(q, q, sums[1]);
      sums[2] = fmaf(k, q, sums[2]);
    }
  } else {
    float more[4];
    multiply_rows<C, kFirst, kBlocks / 2>(token, sums);
    multiply_rows<C, kFirst + kBlocks / 2, kBlocks / 2>(token, more);
    add_four(sums, more);
  }
}

/// Shared memory of a tile of several warps, 16-byte aligned.
template <class C>
struct alignas(16) SingleShared : SharedAlphas<C> {
  float with_k[C::kWarps][C::kColumns], with_q[C::kWarps][C::kColumns];
  float rows[C::kWarps][4];  ///< multiply_rows()
  float gates[4];            ///< alpha, beta
  uint32_t zero;             ///< SingleTile::reconvert()
};

/// The warp's sums, over all of its rows, to the other ones.
template <class C>
__device__ __forceinline__ void show(const SinglePlace<C>& at, float (&all)[C::kWarps][C::kColumns],
                                     const float (&sums)[4]) {
  if constexpr (C::kWarps == 1) return;
  if (at.lane < C::kRowLanes) write_four(&all[at.warp][at.local()], sums);
}

/// Sums of four columns over all warps.
template <class C>
__device__ __forceinline__ void gather(const SinglePlace<C>& at,
                                       const float (&all)[C::kWarps][C::kColumns],
                                       float (&sums)[4]) {
  if constexpr (C::kWarps == 1) return;
  sum_warps<C::kWarps>(&all[0][at.local()], C::kFirstBit + 2, sums);
}

/// Sums of rows over all warps. PERF by lanes where registers are few: the same order of sums.
template <class C>
__device__ __forceinline__ void gather_rows(const SinglePlace<C>& at,
                                            const float (&all)[C::kWarps][4], float (&sums)[4]) {
  if constexpr (C::kSharesRows) {
    static_assert(C::kWarps == 8);
    read_four(all[at.lane % C::kWarps], sums);
    ptx::sum_over_lanes<0, 3>(sums);
  } else {
    sum_warps<C::kWarps>(all[0], 2, sums);
  }
}

template <class C>
__device__ __forceinline__ void write_o(const SingleParams& p, const SinglePlace<C>& at,
                                        const float (&o)[4]) {
  using Io = tile::Packed<typename C::Io>;
  char* const row = const_cast<char*>(single_row(p.o, at.token(), at.head)) + 2 * at.column;
  *reinterpret_cast<uint2*>(row) = make_uint2(Io::pack(o[0], o[1]), Io::pack(o[2], o[3]));
}

/// The lane's own column of o, of [V,K].
template <class C>
__device__ __forceinline__ void write_own(const SingleParams& p, const SinglePlace<C>& at,
                                          float o) {
  char* const row = const_cast<char*>(single_row(p.o, at.token(), at.head));
  const uint32_t word = tile::Packed<typename C::Io>::pack(o, 0.0f);
  *(reinterpret_cast<uint16_t*>(row) + at.own_column()) = static_cast<uint16_t>(word);
}

/// What the lane has of o, where the sequence is padding.
template <class C>
__device__ __forceinline__ void write_zeros(const SingleParams& p, const SinglePlace<C>& at) {
  if constexpr (C::kVk) {
    write_own<C>(p, at, 0.0f);
  } else {
    constexpr float kZeros[4] = {};
    write_o<C>(p, at, kZeros);
  }
}

/// S <- alpha S + k v^T, of the lane's rows.
/// @param alpha without effect where rows have gates of their own
template <class C, class Tile, class Token>
__device__ __forceinline__ void update_rows(Tile& tile, Token& token, float alpha,
                                            const float (&v)[4]) {
#pragma unroll
  for (int block = 0; block < C::kRows / 4; ++block) {
    float k[4], alphas[4] = {alpha, alpha, alpha, alpha};
    token.block_of_k(block, k);
    if constexpr (C::kKeyGates) token.block_of_alpha(block, alphas);
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      float x[4];
      tile.get(4 * block + m, x);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = fmaf(k[m], v[i], alphas[m] * x[i]);
      tile.set(4 * block + m, x);
    }
  }
}

/// The state that the token's update leaves, and the four columns of o of the lanes that write
/// them.
/// @param written whether the state is. PERF asked for ahead of the update where registers are few:
///        numbers would wait behind the question unpacked.
template <class C, class Tile>
__device__ __forceinline__ void advance_by_rows(const SingleParams& p, const SinglePlace<C>& at,
                                                SingleToken<C>& token, Gates gates,
                                                SingleShared<C>* shared, Tile& tile, bool written) {
  float rows[4], u[4], w[4], v[4];
  multiply_rows<C, 0, C::kRows / 4>(token, rows);
  ptx::sum_over_lanes<C::kFirstBit, 5 - C::kFirstBit>(rows);
  if (C::kWarps > 1 && at.lane == 0) {
    write_four(shared->rows[at.warp], rows);
    if (at.warp == C::kWarps - 1) {
      shared->gates[0] = gates.alpha, shared->gates[1] = gates.beta;
      shared->zero = 0;
    }
  }
  sum_blocks<C, 0, C::kRows / 4>(tile, token, u, w);
  ptx::sum_over_lanes<C::kFirstBit, 5 - C::kFirstBit>(u);
  ptx::sum_over_lanes<C::kFirstBit, 5 - C::kFirstBit>(w);
  show<C>(at, shared->with_k, u);
  show<C>(at, shared->with_q, w);
  if constexpr (C::kWarps > 1) {
    // SYNC CTA: sums, products and gates are complete
    __syncthreads();
    gates = {shared->gates[0], shared->gates[1]};
    gather_rows<C>(at, shared->rows, rows);
  }
  gather<C>(at, shared->with_k, u);
  const TokenFactors f = factors_from(p, gates.alpha, gates.beta, {rows[0], rows[1], rows[2]});
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v[i] = token.number(token.v, i);
    f.correct(u[i], &v[i]);
  }
  if (at.writes_o()) {
    gather<C>(at, shared->with_q, w);
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = f.output(w[i], v[i]);
    write_o<C>(p, at, w);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] *= f.k;
  if constexpr (C::kReconverts) {
    const uint32_t zero = *static_cast<volatile uint32_t*>(&shared->zero);
    tile.reconvert(zero);
    token.reconvert(zero);
  }
  if (C::kSharesRows && !written) return;
  update_rows<C>(tile, token, f.alpha, v);
}

/// The rest of fold_over_lanes<32>() over four times four numbers, each four one by fold_step(four, 0).
__device__ __forceinline__ float fold_fours(const float (&x)[4]) {
  float sum[1] = {ptx::fold_step(x, 2)};
  ptx::sum_over_lanes<4, 1>(sum);
  return sum[0];
}

/// u = S^T k and w = S^T q of [V,K], of k and q the lane's four rows: sums of the column that the lane
/// has. PERF by fours of columns, whose sums lanes share out at once: registers.
template <class C, class Tile>
__device__ __forceinline__ void sum_columns(Tile& tile, const float (&k)[4], const float (&q)[4],
                                            float* u, float* w) {
  float with_k[4], with_q[4];
#pragma unroll
  for (int four = 0; four < 4; ++four) {
    float sums_k[4] = {}, sums_q[4] = {};
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      float column[4];
      tile.get(4 * four + m, column);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums_k[m] = fmaf(column[e], k[e], sums_k[m]);
        sums_q[m] = fmaf(column[e], q[e], sums_q[m]);
      }
    }
    with_k[four] = ptx::fold_step(sums_k, 0);
    with_q[four] = ptx::fold_step(sums_q, 0);
  }
  *u = fold_fours(with_k);
  *w = fold_fours(with_q);
}

/// advance_by_rows() of [V,K]: a lane has four rows of all columns of its warp, whose sums lanes share
/// out, and which no other warp has. It writes one column of o.
template <class C, class Tile>
__device__ __forceinline__ void advance_by_columns(const SingleParams& p, const SinglePlace<C>& at,
                                                   SingleToken<C>& token, const Gates& gates,
                                                   Tile& tile) {
  float rows[4], k[4], q[4];
  multiply_rows<C, 0, 1>(token, rows);
  ptx::sum_over_lanes<0, 5>(rows);
  const TokenFactors f = factors_from(p, gates.alpha, gates.beta, {rows[0], rows[1], rows[2]});
  decayed_block<C>(token, 0, k, q);
  float u, w;
  sum_columns<C>(tile, k, q, &u, &w);
  float v = token.number(token.v, 0);
  f.correct(u, &v);
  if (at.writes_o()) write_own<C>(p, at, f.output(w, v));
  v *= f.k;
  float alpha[4] = {f.alpha, f.alpha, f.alpha, f.alpha};
  token.block_of_k(0, k);
  if constexpr (C::kKeyGates) token.block_of_alpha(0, alpha);
#pragma unroll
  for (int m = 0; m < C::kColumns; ++m) {
    const float delta = ptx::from_lane(v, m);
    float column[4];
    tile.get(m, column);
#pragma unroll
    for (int e = 0; e < 4; ++e) column[e] = fmaf(k[e], delta, alpha[e] * column[e]);
    tile.set(m, column);
  }
}

/// Takes the token, of either layout.
template <class C, class Tile>
__device__ __forceinline__ void advance_single(const SingleParams& p, const SinglePlace<C>& at,
                                               SingleToken<C>& token, const Gates& gates,
                                               SingleShared<C>* shared, Tile& tile,
                                               bool written = true) {
  if constexpr (C::kVk) {
    advance_by_columns<C>(p, at, token, gates, tile);
  } else {
    advance_by_rows<C>(p, at, token, gates, shared, tile, written);
  }
}

/// Asks the L2 for the tile: a request is 32 bytes.
template <class C>
__device__ __forceinline__ void prefetch_single(uint32_t lane, const char* address) {
  if (lane % (8 / C::kWords) != 0) return;
#pragma unroll
  for (int m = 0; m < C::kLaneVectors; ++m) ptx::prefetch_sector(address + m * C::kVectorBytes);
}

__device__ __forceinline__ RawNumber request_single(const SingleScalar& t, uint32_t sequence,
                                                    uint32_t group, uint32_t member) {
  if (t.data == nullptr) return 0;
  const char* const row = moved(t.data, sequence, t.sequence_bytes);
  return request_number(moved(moved(row, group, t.group_bytes), member, t.member_bytes), 0,
                        t.number);
}

/// @param at SinglePlace, or LayerPlace
template <class Params, class Place>
__device__ __forceinline__ GateInputs request_gates(const Params& p, const Place& at) {
  GateInputs in{};
  in.gate = request_single(p.gate, at.token(), at.group, at.member);
  in.beta = request_single(p.beta, at.token(), at.group, at.member);
  if (p.gate_form == GateForm::kRaw) {
    in.A_log = request_number(moved(p.A_log.data, at.head, p.A_log.head_bytes), 0, p.A_log.number);
    in.dt_bias =
        request_number(moved(p.dt_bias.data, at.head, p.dt_bias.head_bytes), 0, p.dt_bias.number);
  }
  return in;
}

/// One CTA's tiles, of launches that cut heads into tiles.
template <class C>
__device__ __forceinline__ void run_single_tiles(const typename C::Params& p) {
  constexpr int kBytes = sizeof(typename C::State);
  SinglePlace<C> at(p);
  bool has_token = true;
  const uint64_t offset = (uint64_t{at.head} * (kSingleSize * kSingleSize) + at.origin()) * kBytes;
  const char* const pool = p.initial.data + offset;
  // The slot as it may be ahead of the wait: what is read of another one is not used.
  int slot = min(max(peek_single(p.read_slots, at.sequence), 0), p.initial.slots - 1);
  prefetch_single<C>(at.lane, moved(pool, slot, p.initial.slot_bytes));
  const bool has_gates = at.warp == C::kWarps - 1;
  const uint64_t policy = load_policy(p);
  SingleTile<C> tile;
  SingleToken<C> token;
  RowGates<C> gates_of_rows;
  GateInputs inputs{};
  SingleEntries slots;
  // A second time only where the slot was another one.
  for (;;) {
    // SYNC grid: what earlier launches wrote is visible. PERF in the loop: what does not change in
    // it, all addresses, is computed ahead of it.
    ptx::wait_for_dependencies();
    if (p.early) ptx::launch_dependents();
    tile.request(moved(pool, slot, p.initial.slot_bytes), policy);
    if constexpr (C::kPacked) has_token = find_token<C>(p, &at);
    token.request(p, at);
    gates_of_rows.request(p, at);
    if (has_gates) inputs = request_gates(p, at);
    slots = find_entries(p, at.sequence);
    if (slots.read == slot || slots.read < 0) break;
    slot = slots.read;
  }
  ptx::launch_dependents();
  if (slots.padded) {
    if (has_token && at.writes_o()) write_zeros<C>(p, at);
    return;
  }
  if (slots.read < 0) tile.clear();
  if (has_token) {
    Gates gates{};
    if (has_gates) gates = gates_of<false>(p, inputs);
    auto* const shared = reinterpret_cast<SingleShared<C>*>(ptx::dynamic_memory());
    gates_of_rows.settle(p, at, shared, &token);
    advance_single<C>(p, at, token, gates, shared, tile, slots.write >= 0);
  }
  if (slots.write < 0) return;
  char* const out = p.final.data + offset;
  tile.store(out + uint64_t{static_cast<uint32_t>(slots.write)} * p.final.slot_bytes,
             ptx::evict_first());
}

}  // namespace sluice::cuda::decode

#endif  // SLUICE_CUDA_KERNELS_DECODE_SINGLE_STEP_CUH_
