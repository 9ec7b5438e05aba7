// Tells how far an output is from the reference, where, and whether that is near enough. Its own
// tests (unit/comparer_test.cc) feed it outputs that are wrong in known ways.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_COMPARER_HPP_
#define SLUICE_CHECK_COMPARER_HPP_

#include <string>
#include <vector>

#include "check/array.hpp"

namespace sluice::check {

/// Tokens of the windows of which the worst one counts.
inline constexpr int64_t kWindow = 64;

/// A part of a tensor and its error: ||x - ref|| / ||ref|| over that part.
struct PartError {
  double relative_l2 = 0.0;
  int64_t sequence = -1, head = -1, token = -1;  ///< token: first of the window
};

/// What compare_*() finds. `fault` is set where no number can excuse the output: nothing compared,
/// aliasing, shapes that differ, NaN or inf in other places than the reference's, a value where the
/// reference is exactly zero.
struct Comparison {
  int64_t compared = 0;
  double relative_l2 = 0.0;
  PartError worst_head;    ///< over (sequence, head)
  PartError worst_window;  ///< over (sequence, head, 64-token window)
  double max_abs = 0.0;
  std::vector<int64_t> max_abs_at;
  std::string fault;
};

/// [B,T,HV,V] outputs. With cu_seqlens (N+1 offsets, B = 1) only their rows are compared.
Comparison compare_tokens(const sluice_tensor& actual, const sluice_tensor& reference,
                          const std::vector<int64_t>& cu_seqlens = {});
/// [N,HV,K,V] states; no windows.
Comparison compare_states(const sluice_tensor& actual, const sluice_tensor& reference);
/// Any shape, as one part.
Comparison compare_whole(const sluice_tensor& actual, const sluice_tensor& reference);

/// Largest relative L2 errors that pass.
struct Tolerance {
  double whole = 0.0, head = 0.0, window = 0.0;
};

enum class Quantity { kOutput, kState };
/// Key statistics that the caps depend on. Degenerate: (nearly) one direction; then 16-bit operands
/// lose what no method can give back, and the yardstick alone decides.
enum class Conditioning { kBenign, kCorrelated, kDegenerate };

/// The caps of docs/math.md section 7 by io dtype; heads and windows get twice the whole. Infinite
/// for degenerate keys in 16 bits.
Tolerance cap(sluice_dtype io, Quantity quantity, Conditioning conditioning);

/// Limits of a gradient whose terms err by `arithmetic` and which is stored with a rounding of
/// `unit`: that by less than 2 units in a few elements and by less than 1 in the mean of many.
/// `tensor` is the input that it is by. A_log and dt_bias: sums over all tokens of terms that have
/// both signs and cancel, 100 of them to a tenth. Gates and write strengths: one number a token, a
/// sum of products that cancel likewise, so that only the whole tensor has a limit.
Tolerance gradient_tolerance(const std::string& tensor, int64_t elements, double arithmetic,
                             double unit);

/// Rules (a) and (b): 1.25 times the yardstick's error as a whole, twice its worst head and window,
/// and never more than the cap as a whole. Without a cap 1.5 times as a whole: there approximate
/// inverses show. Small outputs may err by a rounding of `io`.
Tolerance from_yardstick(const Comparison& yardstick, const Tolerance& cap, sluice_dtype io);

/// The same for a gradient, by the yardstick of gradients and without a cap; never less than what
/// float32 may err, whose terms err by `arithmetic`: some gradients meet no rounded operand. Sums
/// that cancel, and are too few for a mean, may err by ten roundings; one number a token by one.
Tolerance gradient_from_yardstick(const std::string& tensor, const Comparison& yardstick,
                                  double arithmetic, sluice_dtype io);

struct Verdict {
  bool pass = false;
  std::string line;  ///< one line: name, errors, places, limits, PASS or FAIL with the reason
};

Verdict judge(const std::string& name, const Comparison& comparison, const Tolerance& tolerance);

}  // namespace sluice::check

#endif  // SLUICE_CHECK_COMPARER_HPP_
