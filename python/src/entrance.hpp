// Declares who is inside an operator, and how to wait until nobody is.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_PYTHON_ENTRANCE_HPP_
#define SLUICE_PYTHON_ENTRANCE_HPP_

namespace sluice::python {

/// While it lives, this thread is inside an operator; waits for Quiet to end first. Made and ended
/// under the GIL, which its wait gives away.
class Entrance {
 public:
  Entrance() noexcept;
  ~Entrance();
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;
};

/// While it lives, no thread is inside an operator: it waits for those that are, and others wait at
/// the entrance. Made and ended under the GIL, which its wait gives away.
class Quiet {
 public:
  Quiet() noexcept;
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

}  // namespace sluice::python

#endif  // SLUICE_PYTHON_ENTRANCE_HPP_
