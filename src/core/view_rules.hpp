// Declares Checker: the rules that arguments keep, one method a rule, the first failure wins.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_VIEW_RULES_HPP_
#define SLUICE_CORE_VIEW_RULES_HPP_

#include <cstdarg>
#include <cstdint>
#include <span>

#include "core/argument_views.hpp"
#include "core/problem.hpp"
#include "sluice/status.hpp"

namespace sluice::core {

/// "bfloat16", "float64", "uint8"; "code 7 of 8 bits" for what has no usual name.
struct TypeName {
  char text[32];
};
TypeName type_name(sluice_dtype dtype) noexcept;

/// Sets of dtypes that a rule allows.
enum class Dtypes { kFloat, kIndex, kFlag };

/// Collects the first violated rule of one call. After it, every method returns at once, so that a
/// validator reads as a list of rules. Messages: "op: argument property = found, expected ...".
class Checker {
 public:
  explicit Checker(const char* op) noexcept : op_(op) {}

  bool ok() const noexcept { return status_.ok(); }
  const Status& status() const noexcept { return status_; }
  /// The operator's name from here on.
  void rename(const char* op) noexcept { op_ = op; }
  sluice_device device() const noexcept { return device_; }

  /// Fails with kInvalidArgument and "op: " before the printf-style text.
  [[gnu::format(printf, 2, 3)]] void fail(const char* format, ...) noexcept;
  /// The same with kUnsupported: legal, but past what this library computes.
  [[gnu::format(printf, 2, 3)]] void unsupported(const char* format, ...) noexcept;

  /// A view that must be there (zero elements may have null data): rank, dtype, device, alignment,
  /// sizes that fit 64 bits. Returns whether it is usable.
  bool required(const char* name, const Tensor& t, int rank, Dtypes dtypes) noexcept;
  /// The same for a view that may be absent; returns whether it is present and usable.
  bool optional(const char* name, const Tensor& t, int rank, Dtypes dtypes) noexcept;
  /// A view that must not be given here; `rule` says why.
  void absent(const char* name, const Tensor& t, const char* rule) noexcept;

  /// shape[axis] == expected; `what` names the expectation, e.g. "T of q".
  void dimension(const char* name, const Tensor& t, int axis, int64_t expected,
                 const char* what) noexcept;
  /// shape[axis] >= minimum.
  void dimension_at_least(const char* name, const Tensor& t, int axis, int64_t minimum,
                          const char* what) noexcept;
  /// The first `axes` axes as those of another view.
  void same_shape(const char* name, const Tensor& t, const Tensor& other, int axes,
                  const char* what) noexcept {
    for (int axis = 0; axis < axes; ++axis) dimension(name, t, axis, other.shape[axis], what);
  }
  /// Last dimension contiguous.
  void inner_contiguous(const char* name, const Tensor& t) noexcept;
  /// An output: strides positive, no two elements at one address.
  void writable(const char* name, const Tensor& t) noexcept;
  /// Same dtype as another view.
  void same_dtype(const char* name, const Tensor& t, const char* other_name,
                  const Tensor& other) noexcept;
  /// Distinct views that may not start at the same memory.
  void distinct(const char* name, const Tensor& t, const char* other_name,
                const Tensor& other) noexcept;

  /// An enumerator in [0, count); `names` lists them for the message.
  void choice(const char* name, int32_t value, int32_t count, const char* names) noexcept;
  /// Finite and >= 0.
  void epsilon(const char* name, double value) noexcept;
  /// Reserved members are zero.
  void reserved(int32_t value) noexcept;

 private:
  bool view(const char* name, const Tensor& t, int rank, Dtypes dtypes) noexcept;
  void same_device(const char* name, const Tensor& t) noexcept;
  void extent(const char* name, const Tensor& t) noexcept;
  void set(Code code, const char* format, va_list arguments) noexcept;

  const char* op_;
  Status status_;
  sluice_device device_{0, 0};  ///< of the first view seen; type 0 before
};

/// Number of elements; shapes were checked.
int64_t element_count(const Tensor& t) noexcept;

/// Gives every axis of at most one element the stride of a dense tensor. Callers may leave anything
/// there, as NumPy and torch do; a backend that multiplies it would overflow.
void settle_strides(Tensor* t) noexcept;
/// Those of all views of a struct of arguments.
void settle_strides(void* args, std::span<const ViewField> fields) noexcept;

/// Matrices [.., n, n] of rank 2 to 4 as [B', n, HV', n].
Tensor rows_of_matrices(const Tensor& matrices) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_VIEW_RULES_HPP_
