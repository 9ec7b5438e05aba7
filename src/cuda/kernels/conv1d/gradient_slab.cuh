// Computes gradients of the convolution for a slab of tokens.
//
// Math      docs/math.md section 10: dx_t = sum_w weight_w c_{t+W-1-w}, c = d_out act'(pre)
// Roles     a thread has four neighbouring channels of one 16-bit type, or one channel of any form,
//           and walks through the tokens of a slab and three more; a warp has 32 such threads.
//           Warps behind those of slabs have the columns of a sequence's initial state.
// Pipeline  four tokens at a time: loads of x and d_out, then c, sums for dweight and dbias, and the
//           row of dx three tokens back. Inside a slab, in the form of models (W = 4, SiLU), nothing
//           is asked of a token, and the next four are on their way.
// Memory    the last four inputs and c's in registers; sums of a slab go to the workspace.
// Floor     x, d_out once and 5 % more, dx once: docs/kernels/layer.md
// Rejected  atomics for dweight: other bits in every run
//
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_SLAB_CUH_
#define SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_SLAB_CUH_

#include "cuda/device/column_sums.cuh"
#include "cuda/device/follow.cuh"
#include "cuda/kernels/conv1d/launch.h"
#include "cuda/kernels/conv1d/sequence.cuh"
#include "cuda/kernels/conv1d/taps.cuh"

namespace sluice::cuda::conv1d {

/// One channel of any type.
struct AnyNumbers {
  static constexpr int kCount = 1;
  static constexpr int kCtas = 4;  ///< a multiprocessor, at least
  using Raw = float;               ///< as loaded
  static __device__ __forceinline__ Raw load(const void* data, int64_t at, Number number) {
    return device::load_number(data, at, number);
  }
  static __device__ __forceinline__ void unpack(const Raw& raw, float (&out)[kCount]) {
    out[0] = raw;
  }
  static __device__ __forceinline__ void store(void* data, int64_t at, Number number,
                                               const float (&x)[kCount]) {
    device::store_number(data, at, number, x[0]);
  }
};

/// Four neighbouring channels of a 16-bit type. PERF eight would spill: taps, inputs, c's and sums are
/// seventeen registers a channel.
template <Number kType>
struct Packs {
  static constexpr int kCount = kSlabPack;
  static constexpr int kCtas = 0;  ///< the compiler's choice, 3
  using Raw = uint2;
  static __device__ __forceinline__ Raw load(const void* data, int64_t at, Number) {
    return __ldg(reinterpret_cast<const uint2*>(static_cast<const char*>(data) + 2 * at));
  }
  static __device__ __forceinline__ void unpack(const Raw& raw, float (&out)[kCount]) {
    float low[2], high[2];
    device::Pack<kType>::unpack_word(raw.x, low), device::Pack<kType>::unpack_word(raw.y, high);
    out[0] = low[0], out[1] = low[1], out[2] = high[0], out[3] = high[1];
  }
  static __device__ __forceinline__ void store(void* data, int64_t at, Number,
                                               const float (&x)[kCount]) {
    const uint2 words{device::Pack<kType>::joined({x[0], x[1]}),
                      device::Pack<kType>::joined({x[2], x[3]})};
    *reinterpret_cast<uint2*>(static_cast<char*>(data) + 2 * at) = words;
  }
};

/// sigmoid(x) (1 + x (1 - sigmoid(x))).
__device__ __forceinline__ float silu_slope(float x) {
  const float s = device::sigmoid(x);
  return fmaf(s * x, 1.0f - s, s);
}

/// A thread's channels, from `channel` on.
template <class Numbers>
class Lane {
 public:
  static constexpr int kCount = Numbers::kCount;

  __device__ __forceinline__ Lane(const ConvGradientParams& params, int64_t channel)
      : p_(params),
        f_(params.forward),
        channel_(channel),
        group_(channel / f_.part[0].C),
        inside_(channel % f_.part[0].C),
        taps_(load_taps<kCount>(f_, channel)) {}

  /// Gradients of tokens begin .. end - 1 of a sequence, negative ones being columns of its state,
  /// and sums over those that are none.
  __device__ void run(int64_t batch, const Span& span, int64_t begin, int64_t end) {
    const bool usual = f_.W == kMaxWidth && f_.silu && p_.dx.data != nullptr;
    span_ = span, batch_ = batch, begin_ = begin, end_ = end, tokens_ = span.end - span.begin;
#pragma unroll
    for (int i = 0; i < kMaxWidth; ++i) {
      clear(x_[i]), clear(inner_[i]);
      const int64_t t = begin + i - kMaxWidth;
      if (begin >= 0 && t >= 1 - f_.W) load_input(t, x_[i]);
    }
    // Of these tokens, no sum is another slab's and no dx depends on a final state.
    const int64_t inside = min(end, p_.d_final.data == nullptr ? tokens_ : tokens_ - f_.L);
#pragma unroll 1
    for (int64_t t = begin; t < end + kMaxWidth - 1;) {
      if (t >= 0 && t + kGroup <= inside) {
        t = usual ? inner_groups<true>(t, inside) : inner_groups<false>(t, inside);
      } else {
        token(t++);
      }
    }
  }

  /// Columns of dinitial that no output depends on.
  __device__ void pass_columns() {
    for (int64_t column = 0; column < f_.L - f_.W + 1; ++column) {
      float x[kCount] = {};
      if (column >= tokens_) load_state(p_.d_final, column - tokens_, x);
      store_state(column, x);
    }
  }

  __device__ __forceinline__ void zero_row(int64_t batch, int64_t row) {
    const float x[kCount] = {};
    Numbers::store(p_.dx.data, at(p_.dx, batch, row), p_.dx.number, x);
  }

  __device__ __forceinline__ void store_sums(int64_t slab) const {
#pragma unroll
    for (int w = 0; w < kSums; ++w) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        p_.sums[(slab * kSums + w) * f_.D + channel_ + i] = sums_[w][i];
      }
    }
  }

 private:
  static constexpr int kGroup = 4;

  static __device__ __forceinline__ void clear(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = 0.0f;
  }

  __device__ __forceinline__ int64_t at(const TokenChannels& t, int64_t batch, int64_t row) const {
    return batch * t.batch_stride + row * t.token_stride + group_ * t.group_stride +
           inside_ * t.channel_stride;
  }

  /// Into `out`, which is zeros: what a column holds, or nothing where there is no state.
  __device__ __forceinline__ void load_state(const ConvPool& pool, int64_t column,
                                             float (&out)[kCount]) const {
    if (pool.data == nullptr) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t element = element_of(pool, span_.n, channel_ + i, column);
      out[i] = device::load_number(pool.data, element, pool.number);
    }
  }

  __device__ __forceinline__ void store_state(int64_t column, const float (&x)[kCount]) const {
    const ConvPool& pool = p_.dinitial;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t element = element_of(pool, span_.n, channel_ + i, column);
      device::store_number(pool.data, element, pool.number, x[i]);
    }
  }

  using Raw = typename Numbers::Raw;

  __device__ __forceinline__ Raw load_row(const TokenChannels& rows, int64_t t) const {
    return Numbers::load(rows.data, at(rows, batch_, span_.begin + t), rows.number);
  }

  __device__ __forceinline__ void load_input(int64_t t, float (&out)[kCount]) const {
    if (t < 0) return load_state(f_.initial, f_.L + t, out);
    Numbers::unpack(load_row(f_.part[0].x, t), out);
  }

  /// Whole groups of four from `first` on, all before `inside`. PERF a token's place is asked for
  /// four tokens ahead. @tparam kUsual W = 4, SiLU and a dx are known
  /// @return the token behind them
  template <bool kUsual>
  __device__ __forceinline__ int64_t inner_groups(int64_t first, int64_t inside) {
    const TokenChannels &x_rows = f_.part[0].x, &d_rows = p_.d_out, &dx_rows = p_.dx;
    int64_t x_at = at(x_rows, batch_, span_.begin + first);
    int64_t d_at = at(d_rows, batch_, span_.begin + first);
    int64_t dx_at = at(dx_rows, batch_, span_.begin + first - kMaxWidth + 1);
    Raw x[kGroup], d_out[kGroup];
    const auto load = [&](int i) {
      x[i] = Numbers::load(x_rows.data, x_at, x_rows.number);
      d_out[i] = Numbers::load(d_rows.data, d_at, d_rows.number);
      x_at += x_rows.token_stride, d_at += d_rows.token_stride;
    };
#pragma unroll
    for (int i = 0; i < kGroup; ++i) load(i);
    int left = static_cast<int>((inside - first) / kGroup);
    // The three rows of dx before `begin` are another slab's.
    int foreign = static_cast<int>(max(begin_ + kMaxWidth - 1 - first, int64_t{0}));
    const int64_t end = first + int64_t{left} * kGroup;
#pragma unroll 1
    for (; left > 0; --left) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        float input[kCount], c[kCount], sum[kCount] = {};
        Numbers::unpack(x[i], input);
        shift(x_, input);
        Numbers::unpack(d_out[i], c);
        if (left > 1) load(i);
        through_activation<kUsual>(c);
        add_sums(c);
        shift(inner_, c);
        add_gradients<kUsual>(sum);
        if (i >= foreign && (kUsual || dx_rows.data != nullptr)) {
          Numbers::store(dx_rows.data, dx_at, dx_rows.number, sum);
        }
        dx_at += dx_rows.token_stride;
      }
      foreign = 0;
    }
    return end;
  }

  /// Any token of a slab, of a state before it, or one of the three behind it.
  __device__ __forceinline__ void token(int64_t t) {
    float x[kCount] = {}, c[kCount] = {};
    const bool exists = t >= 0 && t < tokens_;
    if (t < tokens_) load_input(t, x);
    if (exists) Numbers::unpack(load_row(p_.d_out, t), c);
    shift(x_, x);
    if (exists) through_activation<false>(c);
    if (exists && t < end_) add_sums(c);
    shift(inner_, c);
    if (t - kMaxWidth + 1 >= begin_) finish(t - kMaxWidth + 1);
  }

  static __device__ __forceinline__ void shift(float (&ring)[kMaxWidth][kCount],
                                               const float (&next)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int w = 0; w + 1 < kMaxWidth; ++w) ring[w][i] = ring[w + 1][i];
      ring[kMaxWidth - 1][i] = next[i];
    }
  }

  /// Taps times the c's of a token and of those behind it.
  /// WHY the branches: a tap that is not there may meet NaN, and zero times NaN is NaN.
  template <bool kUsual>
  __device__ __forceinline__ void add_gradients(float (&sum)[kCount]) const {
#pragma unroll
    for (int w = 0; w < kMaxWidth; ++w) {
      if (!kUsual && w < kMaxWidth - f_.W) continue;
      add_products(sum, taps_.tap[w], inner_[kMaxWidth - 1 - w]);
    }
  }

  /// c: d_out times the slope of the activation at the newest token.
  template <bool kUsual>
  __device__ __forceinline__ void through_activation(float (&c)[kCount]) const {
    if (!kUsual && !f_.silu) return;
    float pre[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) pre[i] = taps_.bias[i];
#pragma unroll
    for (int w = 0; w < kMaxWidth; ++w) {
      if (kUsual || w >= kMaxWidth - f_.W) add_products(pre, taps_.tap[w], x_[w]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) c[i] *= silu_slope(pre[i]);
  }

  __device__ __forceinline__ void add_sums(const float (&c)[kCount]) {
#pragma unroll
    for (int w = 0; w < kMaxWidth; ++w) add_products(sums_[w], c, x_[w]);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums_[kMaxWidth][i] += c[i];
  }

  /// Token t, whose last c is the newest.
  __device__ __forceinline__ void finish(int64_t t) {
    float sum[kCount] = {};
    const int64_t column = t - tokens_ + f_.L;
    if (p_.d_final.data != nullptr && column >= 0) load_state(p_.d_final, column, sum);
    add_gradients<false>(sum);
    if (t < 0) return store_state(f_.L + t, sum);
    if (p_.dx.data == nullptr) return;
    Numbers::store(p_.dx.data, at(p_.dx, batch_, span_.begin + t), p_.dx.number, sum);
  }

  const ConvGradientParams& p_;
  const ConvParams& f_;
  int64_t channel_;
  int64_t group_, inside_;  ///< of rows: channel_ / C and what is left
  int64_t batch_ = 0, begin_ = 0, end_ = 0, tokens_ = 0;
  Span span_{};
  Taps<kCount> taps_;
  float x_[kMaxWidth][kCount], inner_[kMaxWidth][kCount], sums_[kSums][kCount] = {};
};

template <class Numbers>
__global__ void __launch_bounds__(kThreads, Numbers::kCtas)
    slab_kernel(const __grid_constant__ ConvGradientParams p) {
  device::follow();
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t item = warp / p.channel_warps, n = item - p.slabs;
  const int64_t thread = warp % p.channel_warps * 32 + threadIdx.x % 32;
  const int64_t channel = thread * Numbers::kCount;
  if (warp >= p.warps || channel >= p.forward.D) return;
  Lane<Numbers> lane(p, channel);
  const bool slab = n < 0, packed = p.forward.cu_seqlens.data != nullptr;
  const int64_t batch = slab ? item / p.slabs_each : (packed ? 0 : n);
  const int64_t first = slab ? item % p.slabs_each * p.slab_tokens : 0;
  const int64_t last = slab ? min(first + p.slab_tokens, p.forward.T) : 1;
  // PERF one body for rows of slabs and columns of states, the tokens -W+1 .. -1 of a sequence.
#pragma unroll 1
  for (int64_t row = first; row < last;) {
    const Span span = slab ? span_at(p.forward, batch, row) : rows_of(p.forward, n);
    const int64_t end = slab ? min(span.end, last) : last;
    if (span.n >= 0) {
      lane.run(batch, span, slab ? row - span.begin : 1 - p.forward.W, slab ? end - span.begin : 0);
    }
    for (int64_t t = row; span.n < 0 && t < end && p.dx.data != nullptr; ++t) {
      lane.zero_row(batch, t);
    }
    row = end;
  }
  if (!slab) return lane.pass_columns();
  if (p.sums != nullptr) lane.store_sums(item);
}

/// dweight and dbias of 32 of the kSums D sums.
inline __global__ void __launch_bounds__(device::kSumThreads)
    sums_kernel(const __grid_constant__ ConvGradientParams p) {
  device::follow();
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const int64_t D = p.forward.D;
  device::add_columns(p.sums, p.slabs, kSums * D, reinterpret_cast<float*>(dynamic_shared),
                      [&](int64_t column, float sum) {
                        const int64_t w = column / D - (kMaxWidth - p.forward.W);
                        const bool bias = column / D == kMaxWidth;
                        const ChannelGradient& to = bias ? p.dbias : p.dweight;
                        if (w < 0 || to.data == nullptr) return;
                        const int64_t tap = bias ? 0 : w * to.tap_stride;
                        device::store_number(to.data, column % D * to.channel_stride + tap,
                                             to.number, sum);
                      });
}

/// By GradientForm, and that of sums.
inline constexpr ConvGradientKernel kGradientKernels[] = {
    slab_kernel<AnyNumbers>, slab_kernel<Packs<Number::kBfloat16>>,
    slab_kernel<Packs<Number::kFloat16>>, sums_kernel};

}  // namespace sluice::cuda::conv1d

#endif  // SLUICE_CUDA_KERNELS_CONV1D_GRADIENT_SLAB_CUH_
