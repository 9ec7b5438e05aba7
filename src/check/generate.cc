// Generates random inputs by profile: keys, gates, write strengths and states.
// SPDX-License-Identifier: Apache-2.0
#include "check/generate.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace sluice::check {
namespace {

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }
double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

/// Scales the rows of the last dimension to length 1.
void normalise_rows(Array* array) {
  const auto width = static_cast<size_t>(array->shape.back());
  for (size_t start = 0; start < array->values.size(); start += width) {
    double sum = 0.0;
    for (size_t i = 0; i < width; ++i) sum += array->values[start + i] * array->values[start + i];
    const double factor = sum > 0.0 ? 1.0 / std::sqrt(sum) : 0.0;
    for (size_t i = 0; i < width; ++i) array->values[start + i] *= factor;
  }
}

double raw_key(KeyProfile profile, Random* random) {
  if (profile == KeyProfile::kCos75) return random->uniform();
  const double x = random->normal();
  return profile == KeyProfile::kSiluLike ? x / (1.0 + std::exp(-x)) : x;
}

/// Mixes one direction per (batch, head) into the keys: share^2 of the squared length.
void align_keys(Array* keys, double share, bool alternate, uint64_t seed) {
  const int64_t B = keys->shape[0], T = keys->shape[1], H = keys->shape[2], K = keys->shape[3];
  Array direction({B, H, K});
  Random random(seed);
  for (double& value : direction.values) value = random.normal();
  normalise_rows(&direction);
  const double rest = std::sqrt(1.0 - share * share);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      const double sign = alternate && t % 2 == 1 ? -1.0 : 1.0;
      for (int64_t h = 0; h < H; ++h) {
        for (int64_t i = 0; i < K; ++i) {
          double& key = (*keys)(b, t, h, i);
          key = sign * share * direction(b, h, i) + rest * key;
        }
      }
    }
  }
}

/// One log gate; A and dt_bias belong to kModelLike.
double one_gate(GateProfile profile, int64_t token, int64_t head, Random* random) {
  // Both are always drawn: a token's gate does not depend on what other tokens chose.
  const double uniform = random->uniform(), normal = random->normal();
  const double slow = -5e-4 - 1e-3 * uniform;
  switch (profile) {
    case GateProfile::kNone:
    case GateProfile::kZero:
      return 0.0;
    case GateProfile::kSlow:
      return slow;
    case GateProfile::kFlashQla:
      return head % 4 == 3 ? 0.0 : log_sigmoid(normal) / 16.0;
    case GateProfile::kStrong:
      return log_sigmoid(normal);
    case GateProfile::kModelLike: {
      Random head_random(static_cast<uint64_t>(head) + 77);
      const double A = 16.0 * head_random.uniform();
      const double dt = 1e-3 + (1e-1 - 1e-3) * head_random.uniform();
      return -A * softplus(normal + std::log(std::expm1(dt)));
    }
    case GateProfile::kResets:
      if ((token / 16) % 2 == 1) return slow;
      return token % 2 == 1 ? -80.0 : 0.0;
    case GateProfile::kMinusInfinity:
      return token % 37 == 36 ? -std::numeric_limits<double>::infinity() : slow;
    case GateProfile::kHalfZeros:
      return uniform < 0.5 ? 0.0 : log_sigmoid(normal);
    case GateProfile::kBounded:
      return -5.0 / (1.0 + std::exp(1.0 - normal));
    case GateProfile::kSpread:
      return -1e-4 * std::pow(2e5, static_cast<double>(head % 128) / 127.0) * (0.5 + uniform);
    case GateProfile::kSingleResets:
      return head % 11 == 3 && (token + head) % 23 == 7 ? -100.0 : slow;
    case GateProfile::kOneStrong:
      return head % 64 == 17 ? -1.0 - 2.0 * uniform : slow;
    case GateProfile::kAlternating:
      return token % 2 == 1 ? -80.0 : 0.0;
    case GateProfile::kEvenSlow:
      return -5e-4 - 1e-3 * static_cast<double>(token % 7) / 7.0;
    case GateProfile::kMixed:
      break;
  }
  if (head % 4 == 0) return 0.0;
  if (head % 4 == 1) return slow;
  return head % 4 == 2 ? log_sigmoid(normal) / 16.0 : log_sigmoid(normal);
}

}  // namespace

uint64_t Random::bits() noexcept {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() noexcept {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

Array make_keys(KeyProfile profile, std::vector<int64_t> shape, uint64_t seed) {
  Array keys(std::move(shape));
  if (profile == KeyProfile::kZero) return keys;
  Random random(seed);
  for (double& value : keys.values) value = raw_key(profile, &random);
  normalise_rows(&keys);
  const bool alternate = profile == KeyProfile::kAntiParallel;
  if (profile == KeyProfile::kCos90) align_keys(&keys, std::sqrt(.9), false, seed + 1);
  if (profile == KeyProfile::kIdentical || alternate) align_keys(&keys, 1.0, alternate, seed + 1);
  if (profile == KeyProfile::kCos90) normalise_rows(&keys);
  return keys;
}

Array make_values(ValueProfile profile, std::vector<int64_t> shape, uint64_t seed) {
  Array values = make_normal(std::move(shape), seed);
  if (profile == ValueProfile::kRandom) return values;
  const int64_t T = values.shape[1], row = values.shape[2] * values.shape[3];
  for (size_t i = 0; i < values.values.size(); ++i) {
    const int64_t token = static_cast<int64_t>(i) / row % T;
    if (token < T / 10) values.values[i] *= 1e4;
  }
  return values;
}

Array make_gates(GateProfile profile, std::vector<int64_t> shape, uint64_t seed) {
  if (profile == GateProfile::kNone) return {};
  Array gates(std::move(shape));
  Random random(seed);
  for (int64_t b = 0; b < gates.shape[0]; ++b) {
    for (int64_t t = 0; t < gates.shape[1]; ++t) {
      for (int64_t h = 0; h < gates.shape[2]; ++h)
        gates(b, t, h) = one_gate(profile, t, h, &random);
    }
  }
  return gates;
}

Array make_key_gates(GateProfile profile, std::vector<int64_t> shape, uint64_t seed) {
  const int64_t K = shape[3];
  Array gates = make_gates(profile, {shape[0], shape[1], shape[2] * K}, seed);
  if (gates.empty()) return gates;
  gates.shape = std::move(shape);
  for (int64_t at = 0; at < gates.size(); ++at) {
    double& g = gates.values[static_cast<size_t>(at)];
    if (std::isinf(g) && at % K % 3 != 0) g = -0.01 * static_cast<double>(at % K % 3 - 1);
  }
  return gates;
}

Array make_betas(BetaProfile profile, std::vector<int64_t> shape, uint64_t seed) {
  if (profile == BetaProfile::kAbsent) return {};
  Array betas(std::move(shape));
  Random random(seed);
  for (double& beta : betas.values) {
    const double sigmoid = 1.0 / (1.0 + std::exp(-random.normal()));
    beta = profile == BetaProfile::kSigmoid ? sigmoid
           : profile == BetaProfile::kTwo   ? 2.0
           : profile == BetaProfile::kOne   ? 1.0
                                            : 0.0;
  }
  return betas;
}

Array make_states(StateProfile profile, std::vector<int64_t> shape, uint64_t seed) {
  if (profile == StateProfile::kNone) return {};
  Array states = make_normal(std::move(shape), seed);
  const double factor = profile == StateProfile::kZero   ? 0.0
                        : profile == StateProfile::kLoud ? 1000.0
                                                         : 1.0;
  for (double& value : states.values) value *= factor;
  return states;
}

Array make_normal(std::vector<int64_t> shape, uint64_t seed) {
  Array array(std::move(shape));
  Random random(seed);
  for (double& value : array.values) value = random.normal();
  return array;
}

}  // namespace sluice::check
