// Defines Status, which every call returns. No heap, trivially copyable, never thrown.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_STATUS_HPP_
#define SLUICE_STATUS_HPP_

#include <cstdarg>
#include <cstdio>

#include "sluice/sluice.h"

namespace sluice {

/// Result codes, the values of sluice_code.
enum class Code : int {
  kOk = SLUICE_OK,
  kInvalidArgument = SLUICE_INVALID_ARGUMENT,
  kUnsupported = SLUICE_UNSUPPORTED,
  kWorkspaceTooSmall = SLUICE_WORKSPACE_TOO_SMALL,
  kDeviceError = SLUICE_DEVICE_ERROR,
  kInternal = SLUICE_INTERNAL,
};

/// A code and its message. Messages follow "op: argument property = found, expected ... (rule)".
struct [[nodiscard]] Status {
  static constexpr int kMessageSize = 256;

  Code code = Code::kOk;
  char message[kMessageSize];  ///< up to its terminator; "" of a success

  /// Success. PERF a call makes tens of these: the message behind its terminator is left as it is.
  Status() noexcept { message[0] = '\0'; }

  [[nodiscard]] bool ok() const noexcept { return code == Code::kOk; }
  explicit operator bool() const noexcept { return ok(); }

  /// A failure with a printf-style message, cut at kMessageSize - 1 bytes.
  [[gnu::format(printf, 2, 3)]] static Status failure(Code code, const char* format, ...) noexcept {
    Status status;
    status.code = code;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(status.message, kMessageSize, format, arguments);
    va_end(arguments);
    return status;
  }
};

/// Success.
inline Status ok_status() noexcept { return {}; }

}  // namespace sluice

#endif  // SLUICE_STATUS_HPP_
