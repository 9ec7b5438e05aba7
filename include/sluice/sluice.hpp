// Offers Sluice to C++20: everything, on top of the C interface.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_SLUICE_HPP_
#define SLUICE_SLUICE_HPP_

#include "sluice/arguments.hpp"
#include "sluice/enumerations.hpp"
#include "sluice/ops.hpp"
#include "sluice/stages.hpp"
#include "sluice/status.hpp"
#include "sluice/tensor_view.hpp"
#include "sluice/workspace.hpp"

#endif  // SLUICE_SLUICE_HPP_
