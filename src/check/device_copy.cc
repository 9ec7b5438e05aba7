// Keeps who copies a call's tensors to a device, where a program registered somebody.
// SPDX-License-Identifier: Apache-2.0
#include "check/device_copy.hpp"

namespace sluice::check {

MakeDeviceCopy make_device_copy = nullptr;

}  // namespace sluice::check
