// SPDX-License-Identifier: Apache-2.0
#include "support/device_copy.hpp"

namespace sluice::testing {

MakeDeviceCopy make_device_copy = nullptr;

}  // namespace sluice::testing
