// Declares the environment variables of the library and reads them, as nothing else in src/ does.
// docs/environment.md describes them; tests/lint/check_environment.py compares the two.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CORE_ENVIRONMENT_HPP_
#define SLUICE_CORE_ENVIRONMENT_HPP_

namespace sluice::core {

enum class Variable {
  kImplementation,
  kCpuIsa,
  kNumThreads,
  kCudaKernel,
  kCudaSplit,
  kCudaHistory,
  kDebug,
  kVerbose,
};

/// The value that the process was given; null where the variable is unset or empty.
const char* variable(Variable which) noexcept;

/// Whether a switch is on: set to anything but 0.
bool switched_on(Variable which) noexcept;

}  // namespace sluice::core

#endif  // SLUICE_CORE_ENVIRONMENT_HPP_
