// Lists every view of a call, for those who move a call to another device.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CHECK_VIEWS_HPP_
#define SLUICE_CHECK_VIEWS_HPP_

#include <vector>

#include "core/argument_views.hpp"

namespace sluice::check {

/// The views of a struct of arguments, absent ones too.
template <class Args>
std::vector<sluice_tensor*> views_of(Args* args) {
  std::vector<sluice_tensor*> views;
  for (const core::ViewField& field : core::kViews<Args>) views.push_back(field.in(args));
  return views;
}

}  // namespace sluice::check

#endif  // SLUICE_CHECK_VIEWS_HPP_
