// Convolves one sequence's rows over a block of channels (compiled once for each instruction set).
// Used by causal_conv1d and by the layer's decode step.
// SPDX-License-Identifier: Apache-2.0
#if defined(SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
#undef SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
#else
#define SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/kernels/activation-inl.h"
#include "cpu/kernels/conv_state-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Weights [W][stride] and bias [stride] of a block of channels, zeros past `count`.
struct ConvWeights {
  HWY_ALIGN float weight[kMaxWidth * kConvChannels];
  HWY_ALIGN float bias[kConvChannels];

  void load(const core::CausalConvProblem& problem, int64_t first, int64_t count,
            int64_t stride) noexcept {
    for (int64_t w = 0; w < problem.W; ++w) {
      std::fill_n(weight + w * stride + count, stride - count, 0.0f);
    }
    std::fill_n(bias, stride, 0.0f);
    const core::Tensor& w = problem.weight;
    read_matrix(core::address(w, first, 0), w.dtype, {count, w.stride[0], problem.W, w.stride[1]},
                weight, stride);
    if (core::present(problem.bias)) {
      read_strided(core::address(problem.bias, first), problem.bias.dtype, problem.bias.stride[0],
                   count, bias);
    }
  }
};

/// Lanes are channels. tile: W-1 rows of history, then `rows` rows of input, each of `stride`
/// floats; output t replaces row t, whose last use it is.
template <bool kSilu>
void convolve_tile(float* tile, int64_t stride, int64_t rows, int64_t W,
                   const ConvWeights& weights) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t t = 0; t < rows; ++t) {
    float* row = tile + t * stride;
    for (int64_t c = 0; c < stride; c += lanes) {
      auto sum = hn::Load(d, weights.bias + c);
      for (int64_t w = 0; w < W; ++w) {
        sum = hn::MulAdd(hn::Load(d, weights.weight + w * stride + c),
                         hn::Load(d, row + w * stride + c), sum);
      }
      if constexpr (kSilu) sum = silu(d, sum);
      hn::Store(sum, d, row + c);
    }
  }
}

/// Rows of one tile.
constexpr int64_t kConvTileRows = 16;

/// A block of at most kConvChannels channels of one sequence, worked through from its first token
/// on: start(), then fill(), convolve(), row() or store(), and advance() before the next fill().
class ConvTile {
 public:
  void start(const ConvSequence& sequence, int64_t first, int64_t count) noexcept {
    sequence_ = &sequence;
    first_ = first;
    count_ = count;
    stride_ = whole_vectors(count);
    weights_.load(sequence.problem, first, count, stride_);
    // Lanes past `count` are computed and dropped: zeros keep them finite.
    const int64_t rows = std::min(sequence.range.size(), kConvTileRows) + sequence.problem.W - 1;
    for (int64_t row = 0; row < rows; ++row) {
      std::fill_n(tile_ + row * stride_ + count, stride_ - count, 0.0f);
    }
    read_history(sequence, first, count, tile_, stride_);
  }

  /// Reads tokens begin .. begin + rows - 1, rows <= kConvTileRows.
  void fill(int64_t begin, int64_t rows) noexcept {
    float* inputs = tile_ + (sequence_->problem.W - 1) * stride_;
    for (int64_t t = 0; t < rows; ++t) {
      read_inputs(*sequence_, begin + t, first_, count_, inputs + t * stride_);
    }
  }

  void convolve(int64_t rows) noexcept {
    if (sequence_->problem.activation == SLUICE_ACTIVATION_SILU) {
      convolve_tile<true>(tile_, stride_, rows, sequence_->problem.W, weights_);
    } else {
      convolve_tile<false>(tile_, stride_, rows, sequence_->problem.W, weights_);
    }
  }

  /// Stores output row t of the tile as the operator's token `token`.
  void store(int64_t t, int64_t token) const noexcept {
    write_outputs(*sequence_, token, first_, count_, row(t));
  }

  /// Output row t of the tile.
  const float* row(int64_t t) const noexcept { return tile_ + t * stride_; }

  /// Makes the last inputs of a tile of `rows` rows the history of the next one.
  void advance(int64_t rows) noexcept {
    std::copy_n(tile_ + rows * stride_, (sequence_->problem.W - 1) * stride_, tile_);
  }

 private:
  const ConvSequence* sequence_ = nullptr;
  int64_t first_ = 0, count_ = 0, stride_ = 0;
  ConvWeights weights_;
  HWY_ALIGN float tile_[(kConvTileRows + kMaxWidth - 1) * kConvChannels];
};

/// Lanes are tokens of one channel. line: W-1 floats of history, then `count` inputs, readable and
/// writable up to a whole vector more; output t replaces float t.
template <bool kSilu>
void convolve_line(float* line, int64_t count, int64_t W, const float* weight,
                   float bias) noexcept {
  const FloatTag d;
  const int64_t lanes = float_lanes();
  for (int64_t t = 0; t < count; t += lanes) {
    auto sum = hn::Set(d, bias);
    for (int64_t w = 0; w < W; ++w) {
      sum = hn::MulAdd(hn::Set(d, weight[w]), hn::LoadU(d, line + t + w), sum);
    }
    if constexpr (kSilu) sum = silu(d, sum);
    hn::StoreU(sum, d, line + t);
  }
}

}  // namespace sluice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_CPU_KERNELS_CONV_ROWS_INL_H_
