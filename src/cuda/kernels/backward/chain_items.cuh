// Deals out items of chains, loads their operands and factors, and sends what leaves.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_ITEMS_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_ITEMS_CUH_

#include "cuda/device/state_io.cuh"
#include "cuda/kernels/backward/gates.cuh"
#include "cuda/kernels/backward/ready_chunks.cuh"
#include "cuda/kernels/backward/scale_tiles.cuh"
#include "cuda/kernels/backward/segments.cuh"
#include "cuda/kernels/backward/tile_numbers.cuh"
#include "cuda/ptx/lanes.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/tile/fragment.cuh"

namespace sluice::cuda::backward {

/// A sequence or one of its segments, a head and the first of the columns.
struct ChainItem {
  Chunk sequence;  ///< all of its tokens as one chunk, whose number is its first chunk's
  int head, column, chunks;
  int sequence_chunks;    ///< of the whole sequence
  int64_t before, after;  ///< boundaries at its ends, kOwn, or kBorder
  bool exists;            ///< else no chunk is computed and no state touched
  bool sends;             ///< states, rows and what is the caller's; else it ends with a boundary's
  bool is_factor;         ///< of states: columns of M in place of N
  static constexpr int64_t kOwn = -1;     ///< the sequence's own end
  static constexpr int64_t kBorder = -2;  ///< of the launch's window

  __device__ __forceinline__ int rows(int chunk) const {
    return min(sequence.tokens - chunk * kTokens, kTokens);
  }
  /// Where it is entered, and where it is left.
  template <class C>
  __device__ __forceinline__ int64_t entry() const {
    return C::kBack ? after : before;
  }
  template <class C>
  __device__ __forceinline__ int64_t exit() const {
    return C::kBack ? before : after;
  }
  /// The chunk of a step.
  template <class C>
  __device__ __forceinline__ int chunk(int step) const {
    return C::kBack ? chunks - 1 - step : step;
  }
};

/// Cuts `item` down to a segment of its sequence: unless a pass has none there, which is what it
/// finds in memory.
template <class C>
__device__ __forceinline__ void cut_item(const CutSequence& of, int number, ChainPass pass,
                                         ChainItem& item) {
  const int first = number * of.length;
  item.sequence = of.all;
  item.sequence_chunks = of.chunks;
  item.before = number > 0 ? of.boundaries + number - 1 : ChainItem::kOwn;
  item.after = number + 1 < of.count ? of.boundaries + number : ChainItem::kOwn;
  const bool is_own = item.template entry<C>() < 0;  // needs no boundary
  item.sends = !item.is_factor && (pass != ChainPass::kMaps || is_own);
  item.exists = number >= 0 && number < of.count;  // others come of offsets that do not ascend
  if (item.is_factor) {
    item.exists = item.exists && item.before >= 0 && item.after >= 0;
  } else if (pass == ChainPass::kMaps) {
    item.exists = item.exists && (is_own || item.template exit<C>() >= 0);
  }
  if (!item.exists) return;
  item.sequence.number = first;
  item.sequence.row += int64_t{kTokens} * first;
  item.sequence.tokens = min(of.all.tokens - kTokens * first, kTokens * of.length);
}

/// Cuts `item` down to its chunks in the launch's window. Maps of segments are left at their boundary
/// even where a window cuts them, and entered there again.
template <class C>
__device__ __forceinline__ void cut_to_window(const ChainParams& p, ChainItem& item) {
  const Window& window = p.all.window;
  const bool maps = p.pass == ChainPass::kMaps;
  item.sends = window.sends && !maps;
  if (maps && item.template exit<C>() < 0) item.exists = false;
  const auto chunks = static_cast<int64_t>((item.sequence.tokens + kTokens - 1) / kTokens);
  if (!item.exists || chunks == 0) return;
  const auto chunk_from = [&](int64_t row) {
    const int64_t ahead = max(row - item.sequence.row, int64_t{0});
    return static_cast<int>(min((ahead + kTokens - 1) / kTokens, chunks));
  };
  const int first = chunk_from(window.first), end = chunk_from(window.end);
  item.exists = first < end;
  if (first > 0 && !(maps && C::kBack)) item.before = ChainItem::kBorder;
  if (end < chunks && !(maps && !C::kBack)) item.after = ChainItem::kBorder;
  item.sequence.number += first;
  item.sequence.row += int64_t{kTokens} * first;
  item.sequence.tokens = min(item.sequence.tokens - kTokens * first, kTokens * (end - first));
}

/// An item of cut sequences. The first pass has all segments, and of states then the boundaries
/// that an M belongs to; the second one the boundaries, whose segments on the far side it computes.
template <class C>
__device__ __forceinline__ void find_segment(const ChainParams& p, int64_t place, ChainItem& item) {
  const StageParams& s = p.all.stage;
  const SegmentCut& cut = p.all.cut;
  int number = 0;
  int64_t seq;
  item.is_factor = !C::kBack && p.pass == ChainPass::kMaps && place >= cut.slots;
  if (p.pass != ChainPass::kSegments && !item.is_factor) {
    seq = sequence_of_slot(s, cut, place, &number);
  } else {
    seq = sequence_of_boundary(s, cut, place - (item.is_factor ? cut.slots : 0), &number);
    const CutSequence of = cut_sequence(s, cut, seq);
    if (number + 1 >= of.count) return;  // nobody's boundary
    if (!C::kBack && !item.is_factor) ++number;
  }
  cut_item<C>(cut_sequence(s, cut, seq), number, p.pass, item);
}

template <class C>
__device__ __forceinline__ ChainItem chain_item(const ChainParams& p, int number) {
  const StageParams& s = p.all.stage;
  const int slices = static_cast<int>(s.V) / C::kV, HV = static_cast<int>(s.HV),
            place = number / slices / HV;
  ChainItem item{};
  item.before = item.after = ChainItem::kOwn;
  item.head = number / slices % HV;
  item.column = number % slices * C::kV;
  if (p.pass == ChainPass::kWhole) {
    item.sequence.tokens = static_cast<int>(device::tokens_of(s, place, &item.sequence));
    item.sequence_chunks = (item.sequence.tokens + kTokens - 1) / kTokens;
    item.exists = item.sends = true;
  } else {
    find_segment<C>(p, place, item);
  }
  if constexpr (C::kWindows) cut_to_window<C>(p, item);
  item.chunks = item.exists ? (item.sequence.tokens + kTokens - 1) / kTokens : 0;
  return item;
}

__device__ __forceinline__ int first_item(const ChainParams& p) {
  return static_cast<int>(blockIdx.x) - p.first_cta;
}

/// What gradients of an item are multiplied by inside. Whole warps.
template <class C>
__device__ __forceinline__ float item_scale(const BackwardParams& b, const ChainItem& item) {
  if constexpr (!C::kScales) return 1.0f;
  const Chunk& sequence = item.sequence;
  return gradient_scale(b, chunk_number(b.stage, sequence.batch, sequence.seq, 0),
                        item.sequence_chunks, item.head);
}

/// Loading warp.
template <class C>
__device__ __forceinline__ void chain_load_role(const ChainParams& p, ChainShared<C>& s) {
  tile::RingCursor<C::kSlots> cursor;
  if (!tile::is_first_lane()) return;
  for (int number = first_item(p); number < p.items; number += p.ctas) {
    const ChainItem item = chain_item<C>(p, number);
    const auto keys = static_cast<int32_t>(device::key_head(p.all.stage, item.head)),
               batch = static_cast<int32_t>(item.sequence.batch);
    // Of M values are zeros: columns past the last, where the copy engine reads these.
    const int block = item.is_factor ? static_cast<int>(p.all.stage.V) / 64 : item.column / 64;
    for (int step = 0; step < item.chunks; ++step, cursor.next()) {
      const auto row =
          static_cast<int32_t>(item.sequence.row) + item.template chunk<C>(step) * kTokens;
      // SYNC ring.empty: the states and the scores are done with the slot's previous chunk
      cursor.acquire(s.ring);
      ChainSlot<C>& to = s.slots[cursor.slot];
      uint64_t* const full = &s.ring.full[cursor.slot];
      // SYNC ring.full: completes when the copy engine has written
      ptx::mbarrier_arrive_expect(full, uint32_t{sizeof(ChainSlot<C>)});
      ptx::tma_load(to.k.bytes, &p.k, {0, row, 0, keys, batch}, full);
      if constexpr (C::kBack) ptx::tma_load(to.q.bytes, &p.q, {0, row, 0, keys, batch}, full);
      for (int group = 0; group < C::kGroups; ++group) {
        ptx::tma_load(to.rows[group].bytes, &p.rows, {0, row, block + group, item.head, batch},
                      full);
      }
      if constexpr (C::kDelta) ptx::tma_load(to.B.bytes, &p.B, {0, row, 0, item.head, batch}, full);
    }
  }
}

/// Factors of a chunk; one warp.
template <class C>
__device__ __forceinline__ void put_factors(float scale, float gain, const LaneNumbers& numbers,
                                            ChainFactors& f) {
  const float last = numbers.last();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = tile::lane() + 32 * i;
    const float G = numbers.G[i], decayed = decay(G);
    f.G[token] = G;
    f.write[token] = (C::kBack ? 1.0f : numbers.beta[i]) * decay(last - G);
    const float beta = numbers.beta[i];
    f.query[token] = scale * gain * decayed;
    f.recall[token] = C::kBack ? -decayed * beta : -decayed;
    f.mix[token] = -beta;
    f.value[token] = C::kDelta ? ValueStrength<typename C::Io>(beta).stored : 1.0f / gain;
  }
  if (!tile::is_first_lane()) return;
  f.decay = decay(last);
  f.gain = gain;
}

/// Warp `own` of those of gates. PERF several: a chunk is shorter than the latency of its gates.
template <class C>
__device__ __forceinline__ void chain_gate_role(const ChainParams& p, ChainShared<C>& s, int own) {
  tile::RingCursor<C::kSlots> cursor;
  int turn = 0;
  for (int number = first_item(p); number < p.items; number += p.ctas) {
    const ChainItem item = chain_item<C>(p, number);
    const float gain = item_scale<C>(p.all, item);
    for (int step = 0; step < item.chunks;
         ++step, cursor.next(), turn = turn == C::kGateWarps - 1 ? 0 : turn + 1) {
      if (turn != own) continue;
      const int c = item.template chunk<C>(step);
      Chunk chunk = item.sequence;
      chunk.row += c * kTokens;
      chunk.tokens = item.rows(c);
      const LaneNumbers numbers = request_numbers(p.all.stage, chunk, item.head);
      // SYNC ring.empty: the states and the scores are done with the slot's previous chunk
      cursor.acquire(s.ring);
      put_factors<C>(p.all.stage.scale, gain, numbers, s.factors[cursor.slot]);
      // SYNC ring.full: factors are there
      cursor.commit(s.ring);
    }
  }
}

/// Rows of a chunk from their tiles to memory; one warp.
template <class C>
__device__ __forceinline__ void send_rows(const ChainParams& p, const ChainShared<C>& s,
                                          const ChainItem& item, int chunk, int slot) {
  const TokenRows& to = C::kBack ? p.all.dv_tile : p.all.stage.v_new;
  if (to.data == nullptr) return;
  const int count = item.rows(chunk);
  const int64_t row = item.sequence.row + int64_t{kTokens} * chunk;
  for (int group = 0; group < C::kGroups; ++group) {
    const int column = item.column + 64 * group;
    const auto& tile = s.out[group][slot];
    if (count < kTokens) {
      copy_rows<32>(tile.bytes, to, at(to, item.sequence.batch, row, item.head) + column, count);
    } else if (tile::is_first_lane()) {
      ptx::tma_store(&p.out, tile.bytes,
                     {0, static_cast<int32_t>(row), column / 64, item.head,
                      static_cast<int32_t>(item.sequence.batch)});
    }
  }
}

/// Chunks whose bytes a storing warp waits for at a time: PERF the wait holds it up.
inline constexpr int kCountedChunks = 4;

/// Storing warp: states at chunks, and rows.
template <class C>
__device__ __forceinline__ void chain_store_role(const ChainParams& p, ChainShared<C>& s) {
  tile::RingCursor<1> states;
  tile::RingCursor<C::kOutSlots> rows;
  const auto finish = [] {
    if (!tile::is_first_lane()) return;
    ptx::bulk_commit();
    ptx::bulk_wait_read();
  };
  for (int number = first_item(p); number < p.items; number += p.ctas) {
    const ChainItem item = chain_item<C>(p, number);
    const int64_t before = device::chunks_before(p.all.stage, item.sequence.seq);
    const auto first = static_cast<int32_t>(
        C::kWindows ? state_in_window(p.all.window, item.sequence.seq, item.sequence.row)
                    : item.sequence.batch * p.states_per_batch + before + item.sequence.number);
    const auto state_of = [&](int step) { return first + item.template chunk<C>(step); };
    ChunkCounter counter(p.all, item.head, uint32_t{C::kGroups});
    for (int step = 0; step < item.chunks; ++step, states.next(), rows.next()) {
      const int chunk = item.template chunk<C>(step);
      // SYNC state_ring.full: the tiles of the state are written
      states.wait(s.state_ring);
      for (int group = 0; item.sends && tile::is_first_lane() && group < C::kGroups; ++group) {
        ptx::tma_store(&p.state, s.state[group].bytes,
                       {0, 0, item.column / 64 + group, item.head, first + chunk});
      }
      finish();
      // SYNC state_ring.empty: they have been read
      states.release(s.state_ring);
      // PERF while the rows are on their way; of this chunk a group is.
      if (item.sends) counter.template count<1, kCountedChunks>(step, state_of);
      // SYNC out_ring.full: the tiles of rows are written
      rows.wait(s.out_ring);
      if (item.sends) send_rows(p, s, item, chunk, rows.slot);
      finish();
      // SYNC out_ring.empty: they have been read
      rows.release(s.out_ring);
    }
    if (item.sends) counter.template count<0, 1>(item.chunks, state_of);
  }
}

/// Places of a warpgroup of states.
struct ChainPlace {
  int group;         ///< 64 columns of the item's
  uint32_t barrier;  ///< named, of this warpgroup
  uint32_t offset;   ///< tile::turned_piece()
};

/// S^T of a state of 128 rows, or of 64: then the others, which are zeros, stay so. WHY by element:
/// which of an accumulator's are whose rows is known when this is compiled.
template <class T>
__device__ __forceinline__ void load_state(const T* in, const device::StatePlace& place, int64_t K,
                                           tile::Accumulator<128>& S) {
#pragma unroll
  for (int at = 0; at < S.kSize; ++at) {
    if (at < 32 || K == 128) S.x[at] = device::to_float(in[place.offset(at)]);
  }
}
template <class T>
__device__ __forceinline__ void store_state(T* out, const device::StatePlace& place, int64_t K,
                                            const tile::Accumulator<128>& S) {
#pragma unroll
  for (int at = 0; at < S.kSize; ++at) {
    if (at < 32 || K == 128) device::from_float(&out[place.offset(at)], S.x[at]);
  }
}

/// A state of a pool; data: null if there is none.
struct StateOf {
  device::StatePool pool;
  int64_t slot;
  bool is_vk;
};
__device__ __forceinline__ StateOf sequence_state(const StageParams& p, const BoundedPool& pool,
                                                  const ChainItem& item) {
  return {pool.pool, item.sequence.seq, p.row_step == 1};
}
/// Of float32 matrices [boundaries,HV,K,V]; K is V.
__device__ __forceinline__ StateOf boundary_state(const StageParams& p, float* matrices,
                                                  int64_t boundary, bool is_vk = false) {
  device::StatePool pool{};
  pool.data = matrices, pool.slot_stride = p.HV * p.K * p.V, pool.number = Number::kFloat32;
  return {pool, boundary, is_vk};
}

/// Calls use(data, place) with a state of an item's head, if there is one, as an array of its type.
template <class Use>
__device__ __forceinline__ void with_state(const StageParams& p, const StateOf& state,
                                           const ChainItem& item, int group, const Use& use) {
  const device::StatePool& pool = state.pool;
  if (pool.data == nullptr) return;
  const device::StatePlace place(static_cast<int>(p.K), static_cast<int>(p.V), state.is_vk,
                                 item.column + 64 * group);
  const int64_t start = state.slot * pool.slot_stride + item.head * p.K * p.V + place.origin;
  if (pool.number == Number::kFloat32) {
    use(static_cast<float*>(pool.data) + start, place);
  } else if (pool.number == Number::kBfloat16) {
    use(static_cast<__nv_bfloat16*>(pool.data) + start, place);
  } else {
    use(static_cast<__half*>(pool.data) + start, place);
  }
}

/// Where it ends: at a border of the window, at a boundary of the first pass, or as the gradient of an
/// initial state.
template <class C>
__device__ __forceinline__ StateOf leaving_state(const ChainParams& p, const ChainItem& item) {
  const BackwardParams& b = p.all;
  const int64_t boundary = item.template exit<C>();
  if (C::kWindows && boundary == ChainItem::kBorder) {
    // WHY not where states are stored: the gradient is there that this window is to start from.
    float* const after = b.window.sends ? nullptr : b.window.after;
    return boundary_state(b.stage, C::kBack ? b.window.before : after, 0);
  }
  if (boundary < 0) return C::kBack ? sequence_state(b.stage, b.dinitial, item) : StateOf{};
  if (p.pass != ChainPass::kMaps) return {};
  if (item.is_factor) return boundary_state(b.stage, b.cut.by_rows, boundary);
  return boundary_state(b.stage, C::kBack ? b.cut.gradients : b.cut.states, boundary);
}

/// What an item starts from: what the window before has left, what the caller gave, what a boundary
/// holds, or zeros. Maps resume where they end.
template <class C>
__device__ __forceinline__ StateOf entering_state(const ChainParams& p, const ChainItem& item) {
  const BackwardParams& b = p.all;
  const int64_t boundary = item.template entry<C>();
  if (C::kWindows && boundary == ChainItem::kBorder) {
    if (p.pass == ChainPass::kMaps) return leaving_state<C>(p, item);
    return boundary_state(b.stage, C::kBack ? b.window.after : b.window.before, 0);
  }
  if (boundary < 0) {
    return sequence_state(b.stage, C::kBack ? b.d_final : b.stage.state.initial, item);
  }
  if (p.pass == ChainPass::kMaps) return {};
  return boundary_state(b.stage, C::kBack ? b.cut.gradients : b.cut.states, boundary);
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_CHAIN_ITEMS_CUH_
