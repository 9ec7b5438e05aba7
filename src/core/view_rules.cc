// Implements the rules that arguments keep, each with the message of its refusal.
// SPDX-License-Identifier: Apache-2.0
#include "core/view_rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "core/host_access.hpp"

namespace sluice::core {
namespace {

bool allowed(sluice_dtype dtype, Dtypes dtypes) noexcept {
  switch (dtypes) {
    case Dtypes::kFloat:
      return is_float(dtype);
    case Dtypes::kIndex:
      return same(dtype, kInt32) || same(dtype, kInt64);
    case Dtypes::kFlag:
      return same(dtype, kBool) || same(dtype, kUInt8);
  }
  return false;
}

const char* list(Dtypes dtypes) noexcept {
  switch (dtypes) {
    case Dtypes::kFloat:
      return "float32, float16 or bfloat16";
    case Dtypes::kIndex:
      return "int32 or int64";
    case Dtypes::kFlag:
      return "bool or uint8";
  }
  return "";
}

}  // namespace

TypeName type_name(sluice_dtype dtype) noexcept {
  constexpr const char* kKinds[] = {"int", "uint", "float", "", "bfloat", "complex", "bool"};
  const bool known = dtype.code <= 6 && dtype.code != 3;
  TypeName out;
  if (same(dtype, kBool)) {
    std::snprintf(out.text, sizeof out.text, "bool");
  } else if (known) {
    std::snprintf(out.text, sizeof out.text, "%s%d", kKinds[dtype.code], dtype.bits);
  } else {
    std::snprintf(out.text, sizeof out.text, "code %d of %d bits", dtype.code, dtype.bits);
  }
  return out;
}

int64_t element_count(const Tensor& t) noexcept {
  int64_t count = 1;
  for (int axis = 0; axis < t.rank; ++axis) count *= t.shape[axis];
  return count;
}

void settle_strides(Tensor* t) noexcept {
  if (!present(*t) || t->rank > SLUICE_MAX_RANK) return;
  for (int axis = t->rank - 1; axis >= 0; --axis) {
    // The least integer stays where it is, to be refused. PERF few axes need a product.
    if (t->shape[axis] > 1 || t->stride[axis] == INT64_MIN) continue;
    int64_t dense = 1;
    const bool outer = axis + 1 < t->rank;
    if (outer && __builtin_mul_overflow(t->stride[axis + 1], t->shape[axis + 1], &dense)) return;
    t->stride[axis] = dense;
  }
}

void settle_strides(void* args, std::span<const ViewField> fields) noexcept {
  for (const ViewField& field : fields) settle_strides(field.in(args));
}

void Checker::set(Code code, const char* format, va_list arguments) noexcept {
  if (!ok()) return;
  status_.code = code;
  const int prefix = std::snprintf(status_.message, Status::kMessageSize, "%s: ", op_);
  std::vsnprintf(status_.message + prefix, static_cast<size_t>(Status::kMessageSize - prefix),
                 format, arguments);
}

void Checker::fail(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  set(Code::kInvalidArgument, format, arguments);
  va_end(arguments);
}

void Checker::unsupported(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  set(Code::kUnsupported, format, arguments);
  va_end(arguments);
}

void Checker::same_device(const char* name, const Tensor& t) noexcept {
  if (device_.type == 0) {
    if (t.device.type != SLUICE_DEVICE_CPU && t.device.type != SLUICE_DEVICE_CUDA) {
      fail("%s device type = %d, expected %d (CPU) or %d (CUDA)", name, t.device.type,
           SLUICE_DEVICE_CPU, SLUICE_DEVICE_CUDA);
      return;
    }
    device_ = t.device;
  } else if (t.device.type != device_.type || t.device.index != device_.index) {
    fail("%s device = %d:%d, expected %d:%d (one device for all views)", name, t.device.type,
         t.device.index, device_.type, device_.index);
  }
}

void Checker::extent(const char* name, const Tensor& t) noexcept {
  // Bytes from the lowest to the highest element must fit comfortably in 63 bits, and so must the
  // element count, or offset arithmetic could wrap.
  constexpr int64_t kMost = INT64_MAX >> 8;
  int64_t count = 1, span = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    const int64_t size = t.shape[axis], stride = t.stride[axis];
    if (size < 0) {
      fail("%s.shape[%d] = %lld, expected >= 0", name, axis, static_cast<long long>(size));
      return;
    }
    int64_t step = 0;
    if (stride == INT64_MIN ||
        (size > 1 && (__builtin_mul_overflow(count, size, &count) ||
                      __builtin_mul_overflow(stride, size - 1, &step))) ||
        count > kMost || step > kMost || step < -kMost || (span += std::abs(step)) > kMost) {
      fail("%s.shape[%d] = %lld with stride %lld, expected a view of less than 2^55 elements", name,
           axis, static_cast<long long>(size), static_cast<long long>(stride));
      return;
    }
  }
}

bool Checker::view(const char* name, const Tensor& t, int rank, Dtypes dtypes) noexcept {
  if (!ok()) return false;
  if (t.rank != rank) {
    fail("%s rank = %d, expected %d", name, t.rank, rank);
    return false;
  }
  if (!allowed(t.dtype, dtypes)) {
    fail("%s dtype = %s, expected %s", name, type_name(t.dtype).text, list(dtypes));
    return false;
  }
  extent(name, t);
  same_device(name, t);
  // PERF sizes of elements are powers of two, and a division takes as long as ten of these rules.
  const uintptr_t size = static_cast<uintptr_t>(element_size(t.dtype));
  const uintptr_t past = reinterpret_cast<uintptr_t>(t.data) & (size - 1);
  if (past != 0) {
    fail("%s address mod %lld = %lld, expected 0 (aligned to its element type)", name,
         static_cast<long long>(size), static_cast<long long>(past));
  }
  return ok();
}

bool Checker::required(const char* name, const Tensor& t, int rank, Dtypes dtypes) noexcept {
  if (!ok()) return false;
  if (t.rank == 0 && t.data == nullptr) {
    fail("%s = absent, expected a view of rank %d (required)", name, rank);
    return false;
  }
  if (!view(name, t, rank, dtypes)) return false;
  if (t.data == nullptr && element_count(t) != 0) {
    fail("%s.data = null, expected memory for %lld elements (required)", name,
         static_cast<long long>(element_count(t)));
  }
  return ok();
}

bool Checker::optional(const char* name, const Tensor& t, int rank, Dtypes dtypes) noexcept {
  if (!ok() || !present(t)) return false;
  return view(name, t, rank, dtypes);
}

void Checker::absent(const char* name, const Tensor& t, const char* rule) noexcept {
  if (ok() && present(t)) fail("%s = given, expected absent (%s)", name, rule);
}

void Checker::dimension(const char* name, const Tensor& t, int axis, int64_t expected,
                        const char* what) noexcept {
  if (ok() && t.shape[axis] != expected) {
    fail("%s.shape[%d] = %lld, expected %lld (%s)", name, axis,
         static_cast<long long>(t.shape[axis]), static_cast<long long>(expected), what);
  }
}

void Checker::dimension_at_least(const char* name, const Tensor& t, int axis, int64_t minimum,
                                 const char* what) noexcept {
  if (ok() && t.shape[axis] < minimum) {
    fail("%s.shape[%d] = %lld, expected >= %lld (%s)", name, axis,
         static_cast<long long>(t.shape[axis]), static_cast<long long>(minimum), what);
  }
}

void Checker::inner_contiguous(const char* name, const Tensor& t) noexcept {
  const int last = t.rank - 1;
  if (ok() && t.shape[last] > 1 && t.stride[last] != 1) {
    fail("%s.stride[%d] = %lld, expected 1 (contiguous last dimension)", name, last,
         static_cast<long long>(t.stride[last]));
  }
}

void Checker::writable(const char* name, const Tensor& t) noexcept {
  if (!ok()) return;
  // In order of stride, each dimension must step over all of the one before it.
  int order[SLUICE_MAX_RANK];
  int count = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] == 0) return;
    if (t.shape[axis] == 1) continue;
    int place = count++;
    for (; place > 0 && t.stride[order[place - 1]] > t.stride[axis]; --place) {
      order[place] = order[place - 1];
    }
    order[place] = axis;
  }
  int64_t reach = 1;
  for (int i = 0; i < count; ++i) {
    const int axis = order[i];
    if (t.stride[axis] < reach) {
      fail("%s.stride[%d] = %lld, expected >= %lld (elements of an output may not share memory)",
           name, axis, static_cast<long long>(t.stride[axis]), static_cast<long long>(reach));
      return;
    }
    reach = t.stride[axis] * t.shape[axis];
  }
}

void Checker::same_dtype(const char* name, const Tensor& t, const char* other_name,
                         const Tensor& other) noexcept {
  if (ok() && !same(t.dtype, other.dtype)) {
    fail("%s dtype = %s, expected %s (that of %s)", name, type_name(t.dtype).text,
         type_name(other.dtype).text, other_name);
  }
}

void Checker::distinct(const char* name, const Tensor& t, const char* other_name,
                       const Tensor& other) noexcept {
  if (ok() && present(t) && t.data == other.data && element_count(t) > 0) {
    fail("%s.data = %s.data, expected other memory (this operator cannot work in place)", name,
         other_name);
  }
}

void Checker::choice(const char* name, int32_t value, int32_t count, const char* names) noexcept {
  if (ok() && (value < 0 || value >= count)) {
    fail("%s = %d, expected %s", name, value, names);
  }
}

void Checker::epsilon(const char* name, double value) noexcept {
  if (ok() && !(std::isfinite(value) && value >= 0)) {
    fail("%s = %g, expected a finite number >= 0 (0 = the default 1e-6)", name, value);
  }
}

void Checker::reserved(int32_t value) noexcept {
  if (ok() && value != 0) fail("reserved = %d, expected 0", value);
}

Tensor rows_of_matrices(const Tensor& t) noexcept {
  const int rank = t.rank < 2 || t.rank > 4 ? 4 : t.rank;
  Tensor m = t;
  m.rank = 4;
  const int batch = rank - 3, head = rank == 4 ? 1 : -1;  // axes of t; negative: there is none
  const auto axis = [&](int to, int from) {
    m.shape[to] = from < 0 ? 1 : t.shape[from];
    m.stride[to] = from < 0 ? 0 : t.stride[from];
  };
  axis(0, rank == 4 ? 0 : batch);
  axis(1, rank - 2);
  axis(2, head);
  axis(3, rank - 1);
  settle_strides(&m);
  return m;
}

}  // namespace sluice::core
