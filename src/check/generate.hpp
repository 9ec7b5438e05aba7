// Generates random inputs with the statistics that break implementations, the same on every
// machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_GENERATE_HPP_
#define SLUICE_CHECK_GENERATE_HPP_

#include <cstdint>

#include "check/array.hpp"

namespace sluice::check {

/// Splitmix64: counter-based, so that a stream is a seed and nothing else.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t bits() noexcept;
  /// [0, 1), 53 bits.
  double uniform() noexcept;
  /// Mean 0, variance 1: twelve uniforms. WHY: additions give the same bits everywhere, where
  /// log and cos need not; the tails end at 6.
  double normal() noexcept;

 private:
  uint64_t state_;
};

enum class KeyProfile {
  kRandomUnit,    ///< random directions
  kSiluLike,      ///< silu(normal): mean cosine .12, what a convolution with SiLU gives
  kCos75,         ///< uniform [0,1): mean cosine .75
  kCos90,         ///< mean cosine .90
  kIdentical,     ///< one direction for all tokens of a head
  kZero,          ///< zeros
  kAntiParallel,  ///< one direction, alternating sign
};

enum class GateProfile {
  kNone,           ///< absent
  kZero,           ///< 0
  kSlow,           ///< uniform -5e-4 .. -1.5e-3: history is never forgotten
  kFlashQla,       ///< every fourth head 0, else logsigmoid(normal) / 16: -3.2 per chunk
  kStrong,         ///< logsigmoid(normal)
  kModelLike,      ///< -A softplus(a + dt_bias), A in [0, 16), softplus(dt_bias) in [1e-3, 1e-1]
  kResets,         ///< 16 tokens of 0 and -80 in turn, then 16 of slow decay
  kMinusInfinity,  ///< slow, every 37th token -inf
  kHalfZeros,      ///< half the tokens 0, else logsigmoid(normal)
  kMixed,          ///< by head: 0, slow, FlashQLA's, strong
  kBounded,        ///< -5 sigmoid(normal - 1)
  kSpread,         ///< a rate by head, from 1e-4 to 20
  kSingleResets,   ///< slow; in every eleventh head, each in its own tokens, -100
  kOneStrong,      ///< slow; in every 64th head -1 to -3
  kAlternating,    ///< 0 and -80 in turn
  kEvenSlow,       ///< slow, all heads of a token alike
};

enum class BetaProfile { kAbsent, kZero, kOne, kTwo, kSigmoid };
enum class StateProfile { kNone, kZero, kRandom, kLoud };  ///< loud: 1000 times the values
enum class ValueProfile { kRandom, kLoudEarly };  ///< loud: the first tenth 1e4 times the rest

/// [B,T,H,K] unit keys (zeros for kZero).
Array make_keys(KeyProfile profile, std::vector<int64_t> shape, uint64_t seed);
/// [B,T,HV,V] values.
Array make_values(ValueProfile profile, std::vector<int64_t> shape, uint64_t seed);
/// [B,T,HV] log gates; empty for kNone.
Array make_gates(GateProfile profile, std::vector<int64_t> shape, uint64_t seed);
/// [B,T,HV,K] log gates, of unlike channels; -inf only in every third one.
Array make_key_gates(GateProfile profile, std::vector<int64_t> shape, uint64_t seed);
/// [B,T,HV] write strengths; empty for kAbsent.
Array make_betas(BetaProfile profile, std::vector<int64_t> shape, uint64_t seed);
/// [N,HV,K,V] states; empty for kNone.
Array make_states(StateProfile profile, std::vector<int64_t> shape, uint64_t seed);
/// Independent normals.
Array make_normal(std::vector<int64_t> shape, uint64_t seed);

}  // namespace sluice::check

#endif  // SLUICE_CHECK_GENERATE_HPP_
