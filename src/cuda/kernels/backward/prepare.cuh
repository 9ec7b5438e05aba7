// Prepares before the stages: q and k with their l2 norm, rows that the copy engine cannot read,
// g and beta from the caller's gate and beta; and after all: gradients of q and k as sums over value
// heads, through the norm, and those of A_log and dt_bias.
//
// Roles     prepare, keys: a warp has a row of q, k, v or d_o, or a token's gates; sums: a CTA has a
//           value head
// Memory    registers; sums: a number a warp of shared memory
// Floor     bytes; small beside the products
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_CUH_
#define SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_CUH_

#include "cuda/device/gate.cuh"
#include "cuda/kernels/backward/rows.cuh"

namespace sluice::cuda::backward {

/// A row of up to kMost numbers in the registers of a warp. Narrow: four neighbours a lane, which
/// come and go together where K and the row allow it; else column 32 m + lane.
template <int64_t kMost>
struct WarpRow {
  static constexpr int kEach = static_cast<int>(kMost) / 32;
  static constexpr bool kNarrow = kMost == kNarrowK;
  float x[kEach];

  __device__ __forceinline__ static int column(int m) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    return kNarrow ? kEach * lane + m : 32 * m + lane;
  }
  /// The lane's four as one word, if they are aligned; null otherwise.
  template <class Word>
  __device__ __forceinline__ static Word* word_at(const TokenRows& rows, int64_t start, int64_t K) {
    auto* const word =
        reinterpret_cast<Word*>(static_cast<uint8_t*>(rows.data) +
                                static_cast<int64_t>(sizeof(Word) / 4) * (start + column(0)));
    return kNarrow && K == kMost && reinterpret_cast<uintptr_t>(word) % sizeof(Word) == 0 ? word
                                                                                          : nullptr;
  }
  /// x += the row.
  __device__ __forceinline__ void add(const TokenRows& rows, int64_t start, int64_t K) {
    if (rows.number != Number::kFloat32) {
      if (const auto* const word = word_at<const uint2>(rows, start, K); word != nullptr) {
        const uint2 pairs = __ldg(word);
        add_pair(0, pairs.x, rows.number);
        add_pair(2, pairs.y, rows.number);
        return;
      }
    }
#pragma unroll
    for (int m = 0; m < kEach; ++m) x[m] += device::row_number(rows, start, column(m), K);
  }
  __device__ __forceinline__ void store(const TokenRows& rows, int64_t start, int64_t K) const {
    if (rows.number != Number::kFloat32) {
      if (auto* const word = word_at<uint2>(rows, start, K); word != nullptr) {
        *word = {pack(x[0], x[1], rows.number), pack(x[2], x[3], rows.number)};
        return;
      }
    }
#pragma unroll
    for (int m = 0; m < kEach; ++m) {
      if (column(m) < K) device::store_number(rows.data, start + column(m), rows.number, x[m]);
    }
  }

 private:
  __device__ __forceinline__ void add_pair(int m, uint32_t pair, Number number) {
    x[m] += device::from_bits(number, static_cast<unsigned short>(pair));
    x[m + 1] += device::from_bits(number, static_cast<unsigned short>(pair >> 16));
  }
  __device__ __forceinline__ static uint32_t pack(float first, float second, Number number) {
    return number == Number::kBfloat16 ? ptx::pack_bf16(first, second)
                                       : ptx::pack_f16(first, second);
  }
};

/// A row of q or k as given, and 1 / sqrt(sum of squares + eps).
template <int64_t kMost>
__device__ __forceinline__ WarpRow<kMost> load_key(const BackwardParams& p, const TokenRows& rows,
                                                   int64_t batch, int64_t row, int64_t head,
                                                   float* factor) {
  WarpRow<kMost> key{};
  key.add(rows, at(rows, batch, row, head), p.stage.K);
  float sum = 0.0f;
#pragma unroll
  for (const float x : key.x) sum = fmaf(x, x, sum);
  // NUM neighbours first: the order of prepare_tiles.cuh, whose lanes have eight columns.
#pragma unroll
  for (int step : {1, 16, 8, 4, 2}) sum += __shfl_xor_sync(~0u, sum, step);
  *factor = 1.0f / sqrtf(sum + p.l2norm_eps);
  return key;
}

/// A row as it is.
template <int64_t kMost>
__device__ __forceinline__ void copy_row(const TokenRows& from, const TokenRows& to, int64_t batch,
                                         int64_t row, int64_t head, int64_t columns) {
  WarpRow<kMost> numbers{};
  numbers.add(from, at(from, batch, row, head), columns);
  numbers.store(to, at(to, batch, row, head), columns);
}

/// A row of q or k where the products read it.
template <int64_t kMost>
__device__ __forceinline__ void place_key(const BackwardParams& p, const TokenRows& from,
                                          const TokenRows& to, int64_t batch, int64_t row,
                                          int64_t head) {
  if (!p.has_norm) return copy_row<kMost>(from, to, batch, row, head, p.stage.K);
  float factor;
  WarpRow<kMost> key = load_key<kMost>(p, from, batch, row, head, &factor);
#pragma unroll
  for (float& x : key.x) x *= factor;
  key.store(to, at(to, batch, row, head), p.stage.K);
  if (p.norms.data == nullptr || threadIdx.x % 32 != 0) return;
  put_float(p.norms, batch, row, to.data == p.q_normal.data ? head : p.stage.H + head, factor);
}

/// One of prepare_units() of a token.
template <int64_t kMost>
__device__ __forceinline__ void prepare_unit(const BackwardParams& p, int64_t batch, int64_t row,
                                             int64_t unit) {
  const StageParams& s = p.stage;
  const TokenRows *from = nullptr, *to = nullptr;
  bool is_key = false;
  const auto look = [&](const TokenRows& given, const TokenRows& place, int64_t heads, bool keys) {
    if (to != nullptr || place.data == nullptr) return;
    if (unit < heads) {
      from = &given, to = &place, is_key = keys;
    } else {
      unit -= heads;
    }
  };
  look(p.raw_q, p.q_normal, s.H, true);
  look(p.raw_k, p.k_normal, s.H, true);
  look(p.raw_v, p.v_copy, s.HV, false);
  look(p.raw_d_o, p.d_o_copy, s.HV, false);
  if (to == nullptr) {
    prepare_gates(p, batch, row);
  } else if (is_key) {
    place_key<kMost>(p, *from, *to, batch, row, unit);
  } else {
    copy_row<kMost>(*from, *to, batch, row, unit, s.V);
  }
}

/// Items are kWarps units each, of tokens of all batch entries or of a window: a warp has one. PERF
/// not all of a token: few heads would be few warps.
template <int64_t kMost>
__global__ void __launch_bounds__(kThreads, 2)
    prepare_kernel(const __grid_constant__ BackwardParams p, int64_t items) {
  device::follow();
  const int64_t in_use = rows_in_use(p.stage), units = prepare_units(p),
                end = prepared_tokens(p) * units;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t number = item * kWarps + threadIdx.x / 32, token = number / units;
    const int64_t batch = token / p.stage.T, row = p.window.first + token % p.stage.T;
    if (number >= end || row >= in_use) continue;
    prepare_unit<kMost>(p, batch, row, number % units);
  }
}

/// One row of dq or dk.
template <int64_t kMost>
__device__ __forceinline__ void key_gradient(const BackwardParams& p, const TokenRows& raw,
                                             const TokenRows& parts, const TokenRows& to,
                                             int64_t batch, int64_t row, int64_t key_head) {
  WarpRow<kMost> gradient{};
  for (int64_t i = 0; i < p.stage.r; ++i) {
    const int64_t head =
        p.stage.head_map_cyclic ? key_head + i * p.stage.H : key_head * p.stage.r + i;
    gradient.add(parts, at(parts, batch, row, head), p.stage.K);
  }
  if (p.has_norm) {
    float factor, along = 0.0f;
    const WarpRow<kMost> key = load_key<kMost>(p, raw, batch, row, key_head, &factor);
#pragma unroll
    for (int m = 0; m < WarpRow<kMost>::kEach; ++m) along = fmaf(key.x[m], gradient.x[m], along);
    along = warp_sum(along) * factor * factor;
#pragma unroll
    for (int m = 0; m < WarpRow<kMost>::kEach; ++m) {
      gradient.x[m] = factor * (gradient.x[m] - key.x[m] * along);
    }
  }
  gradient.store(to, at(to, batch, row, key_head), p.stage.K);
}

/// Items are rows of tokens of all batch entries.
template <int64_t kMost>
__global__ void __launch_bounds__(kThreads, 2)
    keys_kernel(const __grid_constant__ BackwardParams p, int64_t items) {
  device::follow();
  const int64_t in_use = rows_in_use(p.stage);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t batch = item / p.stage.T, row = item % p.stage.T;
    if (row >= in_use) continue;
    for (int64_t i = threadIdx.x / 32; i < 2 * p.stage.H; i += kWarps) {
      const bool is_q = i < p.stage.H;
      const TokenRows& to = is_q ? p.dq : p.dk;
      if (to.data == nullptr) continue;
      key_gradient<kMost>(p, is_q ? p.raw_q : p.raw_k, is_q ? p.dq_parts : p.dk_parts, to, batch,
                          row, is_q ? i : i - p.stage.H);
    }
  }
}

/// A thread's place in the rows of all batch entries, of which it has every kThreads-th.
struct BatchRow {
  int64_t batch, row;

  /// Rows of a batch entry: `in_use`, at least one.
  __device__ __forceinline__ void next(int64_t in_use) {
    for (row += kThreads; row >= in_use; row -= in_use) ++batch;
  }
};

__device__ __forceinline__ float float_at(const TokenRows& rows, const BatchRow& at, int64_t head) {
  return static_cast<const float*>(rows.data)[backward::at(rows, at.batch, at.row, head)];
}

/// What a token adds to the gradients of its head's parameters of gates is made of. WHY the gate as
/// it lies in memory: to convert it is to wait for it.
struct HeadTerm {
  float dg, g;
  uint32_t raw;

  __device__ __forceinline__ HeadTerm() {}
  __device__ __forceinline__ HeadTerm(const BackwardParams& p, const BatchRow& at, int64_t head)
      : dg(float_at(p.dg, at, head)), g(float_at(p.g, at, head)) {
    const int64_t place = backward::at(p.raw_gate, at.batch, at.row, head);
    raw = p.raw_gate.number == Number::kFloat32
              ? static_cast<const uint32_t*>(p.raw_gate.data)[place]
              : static_cast<const uint16_t*>(p.raw_gate.data)[place];
  }
  __device__ __forceinline__ float gate(Number number) const {
    return device::number_of(number, raw);
  }
};

/// ddt_bias and dA_log of a head, by one thread.
__device__ __forceinline__ void store_head_sums(const BackwardParams& p, int64_t head,
                                                float by_bias, float by_rate) {
  if (threadIdx.x != 0) return;
  if (p.ddt_bias.data != nullptr) {
    device::store_number(p.ddt_bias.data, head * p.ddt_bias.stride, p.ddt_bias.number, by_bias);
  }
  if (p.dA_log.data != nullptr) {
    device::store_number(p.dA_log.data, head * p.dA_log.stride, p.dA_log.number, by_rate);
  }
}

/// Items are value heads. PERF several tokens are on their way at once: the latency of memory is
/// what this waits for.
__global__ void __launch_bounds__(kThreads)
    head_sums_kernel(const __grid_constant__ BackwardParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& warps = *reinterpret_cast<float(*)[kWarps]>(dynamic_shared);
  constexpr int kAhead = 8;
  device::follow();
  const int64_t in_use = rows_in_use(p.stage);
  const int64_t batches = p.stage.cu_seqlens.data == nullptr ? p.stage.N : 1;
  for (int64_t head = blockIdx.x; head < items; head += gridDim.x) {
    const device::RawGate raw = device::load_raw_gate(p, head);
    float by_bias = 0.0f, by_rate = 0.0f;
    BatchRow at{0, static_cast<int64_t>(threadIdx.x) - kThreads};
    if (in_use > 0) at.next(in_use);
    while (in_use > 0 && at.batch < batches) {
      HeadTerm terms[kAhead];
      int count = 0;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (at.batch >= batches) continue;
        terms[i] = HeadTerm(p, at, head);
        at.next(in_use);
        count = i + 1;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (i >= count) continue;
        // The clamp has no slope.
        const device::RawSlopes slopes =
            terms[i].g == -128.0f
                ? device::RawSlopes{}
                : device::raw_slopes(p.gate_form, raw, terms[i].gate(p.raw_gate.number),
                                     terms[i].g);
        by_bias += terms[i].dg * slopes.gate;
        // NUM rounded before it is added: the compiler may not fuse the two, whatever gates allow.
        by_rate += __fmul_rn(terms[i].dg, slopes.A_log);
      }
    }
    by_bias = cta_sum(by_bias, warps);
    by_rate = cta_sum(by_rate, warps);
    store_head_sums(p, head, by_bias, by_rate);
  }
}

/// The same from what chunks have left of it. Items are value heads.
__global__ void __launch_bounds__(kThreads)
    chunk_sums_kernel(const __grid_constant__ BackwardParams p, int64_t items) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  auto& warps = *reinterpret_cast<float(*)[kWarps]>(dynamic_shared);
  device::follow();
  const bool packed = p.stage.cu_seqlens.data != nullptr;
  int64_t chunks = device::chunk_slots(p.stage);
  if (packed) chunks = min(chunks, device::chunks_before(p.stage, p.stage.N));
  for (int64_t head = blockIdx.x; head < items; head += gridDim.x) {
    float by_bias = 0.0f, by_rate = 0.0f;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < chunks; i += kThreads) {
      const auto x = __ldg(reinterpret_cast<const float2*>(p.chunk_sums) + i * p.stage.HV + head);
      by_bias += x.x;
      by_rate += x.y;
    }
    by_bias = cta_sum(by_bias, warps);
    by_rate = cta_sum(by_rate, warps);
    store_head_sums(p, head, by_bias, by_rate);
  }
}

}  // namespace sluice::cuda::backward

#endif  // SLUICE_CUDA_KERNELS_BACKWARD_PREPARE_CUH_
