// Prepares a prefill with key-wise gates: all that a chunk of a head needs besides the state
// and v, chunk by chunk at once.
//
// Math    with G, gates summed over the chunk, a vector per token:
//         M_ij = sum_l k_il k_jl e^{G_il - G_jl}, j < i, P likewise of q and k with j <= i (key_levels.cuh)
//         Tmat = (I + diag(beta) M)^-1 diag(beta), q~ = scale e^G q, k~ = e^G k, k^ = e^{G_C - G} k
// Roles   persistent CTAs take chunks and heads by turns; one warp for each block of 16 tokens, whose
//         channels it takes 64 at a time. In the end one warp inverts while the others finish k^. What
//         the next turn begins with is requested ahead of that.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_PREPARE_CUH_
#define SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_PREPARE_CUH_

#include "cuda/kernels/chunk_forward/key_matrices.cuh"
#include "cuda/kernels/chunk_forward/key_records.cuh"
#include "cuda/ptx/tma.cuh"

namespace sluice::cuda::chunk_forward {

/// The lane's tokens of the item in the sequence.
__device__ __forceinline__ int rows_of(const WorkItem& item, const ColumnPlace& place) {
  return item.rows(0) - place.token();
}

/// Requests the lane's gates of channels 64 i and following of the turn that is known.
__device__ __forceinline__ void request_gates(const TokenRows& gates, const WorkItem& item,
                                              const ColumnPlace& place, int i, GateWords& to) {
  const int64_t bytes = gate_bytes(gates), pitch = gates.token_stride * bytes;
  const uint8_t* const first =
      gates_of(gates, item) + place.token() * pitch + (place.channel + 64 * i) * bytes;
  to.request(first, pitch, gates.number == Number::kFloat32, rows_of(item, place));
}

/// Whether the thread sends parts of records: the first ones of warps 0 and 1.
__device__ __forceinline__ bool sends() { return threadIdx.x == 0 || threadIdx.x == 32; }

/// Products inside the warp's block, and in the place of each tile what later steps need; the block's
/// notes. `words`: gates of the first 64 channels, requested long ago.
template <class C>
__device__ __forceinline__ void multiply_block(const PrefillParams& p, KeyPrepareMemory<C>& s,
                                               int block, GateWords& words, BlockSums& sums) {
  const WorkItem& item = s.tables.turn.item;
  KeyTiles<C>& tiles = s.tiles;
  BlockNotes& notes = s.tables.notes[block];
  const ColumnPlace place(block);
  const bool linear = p.key.form == GateForm::kLinear, raw = device::is_raw(p.key.form);
  const float unit = linear ? 1.0f : 0.0f;  // the gate without a decay
  const int token = static_cast<int>(threadIdx.x);
  const float beta = load_beta(p, item, token);
  // SYNC loaded: all threads wait for k and q
  tile::wait_phase(&s.tables.loaded, s.tables.turn.phase);
  if (item.rows(0) < 64) {
    zero_tail<C>(tiles, block, item.rows(0));
    __syncwarp();
  }
  measure_rows<C>(p, tiles, block, item.rows(0), s.tables);
  if (token < 64) {
    s.tables.beta[token] =
        token < item.rows(0) ? device::write_strength(p.beta_form, p.beta_factor, beta) : 0.0f;
  }
  if (sends()) ptx::bulk_wait_read();
  // SYNC: of the chunk before, Tmat, P and k^ have left, whose places are taken
  __syncthreads();
  auto& scratch = reinterpret_cast<LevelScratch*>(tiles.Tmat.bytes)[block];
#pragma unroll 1
  for (int i = 0; i < C::kK / 64; ++i) {
    Four gate[8];
    words.settle(gate, p.key.gate.number, rows_of(item, place), unit);
    if (raw) {
      activate_gates(p, item.head, place.channel + 64 * i,
                     reinterpret_cast<float4*>(scratch.even.bytes), rows_of(item, place), gate);
      __syncwarp();
    }
    Four total = decay_tokens(linear, gate);
    if (p.may_forget_keys()) raise_peaks(notes, gate, i == 0);
    Four other;  // decays over the other half of the block
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float sum = __shfl_xor_sync(~0u, total.x[c], 16);
      total.x[c] += sum;
      other.x[c] = tile::exp2_fast(sum);
    }
    if (place.half == 0) {
      *reinterpret_cast<float4*>(&notes.totals[place.channel + 64 * i]) =
          make_float4(total.x[0], total.x[1], total.x[2], total.x[3]);
    }
    const LaneColumns<typename C::Io> x(gate, place, notes.norms, tiles.k.block(i),
                                        tiles.q.block(i));
    add_low_levels(scratch, place, x, sums);
    if (i + 1 < C::kK / 64) request_gates(p.key.gate, item, place, i + 1, words);
    HighLevels<C>(scratch, place, s, i, other).add_all(x, sums.level[3]);
  }
  if (!p.may_forget_keys()) return;
  const float peak = sum_peaks(notes);
  if (tile::is_first_lane()) notes.peak = peak;
}

/// The warp's products with other blocks, and what these leave: A, inverted on the diagonal, P, q~
/// and k~.
template <class C>
__device__ __forceinline__ void finish_block(const PrefillParams& p, KeyPrepareMemory<C>& s,
                                             int block, KeySums& sums) {
  const KeyTables<C>& tables = s.tables;
  LaneRows rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 16 * block + tile::lane_row() + 8 * i;
    rows.k[i] = length_of(tables, 0, row);
    rows.q[i] = length_of(tables, 1, row) * p.scale;
  }
#pragma unroll 2
  for (int i = 0; i < C::kK / 16; ++i) {
    finish_step<C>(s, block, i, rows, sums.keys, sums.queries);
  }
  store_queries<C>(p, s.tiles, tables, block, sums);
  store_keys<C>(s.tiles, s.tables, block, sums);
  __syncwarp();
  invert_block<C>(s.tiles, s.tables, block);
}

/// k^ of all blocks, by the last three of the four warps. The first of them has other work too.
template <class C>
__device__ __forceinline__ void finish_keys(const KeyPrepareMemory<C>& s, int warp) {
  constexpr int kColumns = C::kK / 16, kAll = 4 * kColumns, kFew = kAll / 4, kMany = kAll * 3 / 8;
  static_assert(kFew + 2 * kMany == kAll);
  const int first = warp == 1 ? 0 : kFew + (warp - 2) * kMany;
  const int end = first + (warp == 1 ? kFew : kMany);
#pragma unroll 2
  for (int at = first; at < end; ++at) {
    const int block = at / kColumns, row = 16 * block + tile::lane_row();
    const float factor[2] = {length_of(s.tables, 0, row), length_of(s.tables, 0, row + 8)};
    finish_late<C>(s, block, at % kColumns, factor);
  }
}

/// Finds the CTA's next ticket that has tokens. One warp.
template <class C>
__device__ __forceinline__ void find_turn(const PrefillParams& p, KeyTables<C>& s) {
  const auto heads = static_cast<uint32_t>(p.HV);
  const auto tickets = static_cast<uint32_t>(first_record(p, p.N)) * heads;
  uint32_t ticket = static_cast<uint32_t>(s.turn.ticket) + gridDim.x;
  __syncwarp();  // all lanes have read
  for (; ticket < tickets; ticket += gridDim.x) {
    const WorkItem item = chunk_of_record(p, ticket / heads, static_cast<int>(ticket % heads));
    if (item.tokens <= 0 || item.padded) continue;
    if (tile::is_first_lane()) s.turn = {item, static_cast<int32_t>(ticket), s.turn.phase ^ 1u};
    return;
  }
  if (tile::is_first_lane()) s.turn.ticket = -1;
}

/// Requests k and q of the turn that is known; one thread.
template <class C>
__device__ __forceinline__ void request_tiles(const PrefillParams& p, KeyPrepareMemory<C>& s) {
  const WorkItem& item = s.tables.turn.item;
  const ptx::BoxOrigin at{0, item.row, 0, device::key_head(p, item.head), item.batch};
  uint64_t* const loaded = &s.tables.loaded;
  // SYNC loaded: completes when the copy engine has written k and q
  ptx::mbarrier_arrive_expect(loaded, 2 * C::KeyTile::kBytes);
  ptx::tma_load(s.tiles.k.bytes, &p.k, at, loaded);
  ptx::tma_load(s.tiles.q.bytes, &p.q, at, loaded);
}

template <class Part>
__device__ __forceinline__ void send_part(Part& to, const void* from) {
  ptx::bulk_store(&to, from, sizeof(Part));
}

/// Sends what is ready of the chunk in hand, and requests what the next one begins with: its tiles as
/// soon as q and k have left.
/// @param to null: there is no chunk in hand
template <class C>
__device__ __forceinline__ void request_turn(const PrefillParams& p, KeyPrepareMemory<C>& s,
                                             KeyRecord<C::kK>* to, int block, GateWords& words) {
  const KeyTurn& turn = s.tables.turn;
  if (turn.ticket >= 0) request_gates(p.key.gate, turn.item, ColumnPlace(block), 0, words);
  if (threadIdx.x != 32) return;
  if (to != nullptr) {
    send_part(to->q, s.tiles.q.bytes);
    send_part(to->k, s.tiles.k.bytes);
    send_part(to->P, s.tiles.P.bytes);
    ptx::bulk_commit();
  }
  if (turn.ticket < 0) return;
  ptx::bulk_wait_read();
  request_tiles(p, s);
}

/// The rest of the record: Tmat by one warp, k^ by the others. What is sent may not have been read yet.
template <class C>
__device__ __forceinline__ void finish_record(const PrefillParams& p, KeyPrepareMemory<C>& s,
                                              KeyRecord<C::kK>& to, int warp) {
  if (warp == 0) {
    if (!p.key.delta) return;
    invert_keys<C>(s.tiles, s.tables);
    ptx::fence_proxy_async();
    __syncwarp();
    if (tile::is_first_lane()) send_part(to.Tmat, s.tiles.Tmat.bytes);
  } else {
    __syncwarp();
    finish_keys<C>(s, warp);
    ptx::fence_proxy_async();
    // SYNC 1: all of k^ is there
    ptx::named_barrier_sync(1, 96);
    if (threadIdx.x == 32) send_part(to.k_late, s.tiles.k_late.bytes);
  }
  if (sends()) ptx::bulk_commit();
}

/// Sums of gates to where they belong: tables, the record, and for whoever looks back.
template <class C>
__device__ __forceinline__ void sum_blocks(const PrefillParams& p, KeyTables<C>& tables,
                                           int32_t ticket, KeyRecord<C::kK>& to) {
  decay_blocks<C>(tables, to.decay);
  if (p.may_forget_keys() && threadIdx.x == 0) {
    const BlockNotes(&of)[4] = tables.notes;
    constexpr float kLn2 = 0.69314718f;
    p.key.peaks[ticket] = (of[0].peak + of[1].peak + of[2].peak + of[3].peak) * kLn2;
  }
}

/// The warp's block of tokens. WHY anew at each call: otherwise it, and places of lanes, are kept in
/// registers across turns, and spill.
__device__ __forceinline__ int own_block() {
  int warp = tile::warp();
  asm volatile("" : "+r"(warp));
  return __shfl_sync(~0u, warp, 0);
}

/// Tickets blockIdx.x + i gridDim.x, each record HV + head; sizeof(KeyPrepareMemory) bytes of dynamic
/// shared memory.
template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    key_prepare_kernel(const __grid_constant__ PrefillParams p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& s = *reinterpret_cast<KeyPrepareMemory<C>*>(dynamic_shared);
  ptx::launch_dependents();
  ptx::wait_for_dependencies();
  if (threadIdx.x == 0) {
    s.tables.turn.phase = 1;
    s.tables.turn.ticket = static_cast<int32_t>(blockIdx.x - gridDim.x);
    ptx::mbarrier_init(&s.tables.loaded, 1);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  if (own_block() == 0) find_turn(p, s.tables);
  // SYNC: the first turn is known
  __syncthreads();
  KeyRecord<C::kK>* to = nullptr;  // of the chunk in hand
  for (;;) {
    int block = own_block();
    GateWords words;
    request_turn<C>(p, s, to, block, words);
    if (to != nullptr) finish_record<C>(p, s, *to, block);
    if (s.tables.turn.ticket < 0) break;
    // SYNC: what the chunk in hand had in the tables has been read
    __syncthreads();
    KeySums sums{};
    multiply_block<C>(p, s, block, words, sums.inside);
    // SYNC: sums of gates, and all warps' decayed keys
    __syncthreads();
    block = own_block();
    const int32_t ticket = s.tables.turn.ticket;
    to = record_at<C::kK>(p, ticket / p.HV, ticket % p.HV);
    sums.own = s.tables.notes[block].own[tile::lane() % 16];
    sum_blocks<C>(p, s.tables, ticket, *to);
    // SYNC: tables of decays are there, and the notes' place may be taken
    __syncthreads();
    // PERF this warp has the fewest products now.
    if (block == 0) find_turn(p, s.tables);
    finish_block<C>(p, s, block, sums);
    ptx::fence_proxy_async();
    // SYNC: A, P, q~ and k~ are there, decayed keys have been read, and the next turn is known
    __syncthreads();
  }
  if (sends()) ptx::bulk_wait_read();
}

}  // namespace sluice::cuda::chunk_forward

#endif  // SLUICE_CUDA_KERNELS_CHUNK_FORWARD_KEY_PREPARE_CUH_
