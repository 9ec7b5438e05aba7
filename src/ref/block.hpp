// Defines what both forms of the recurrence are given: the tokens of one value head, in double,
// after gates and norms.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_REF_BLOCK_HPP_
#define SLUICE_REF_BLOCK_HPP_

#include "ref/matrix.hpp"
#include "sluice/sluice.h"

namespace sluice::ref {

/// C consecutive tokens of one value head.
struct Block {
  Matrix q, k;     ///< [C, K]
  Matrix v;        ///< [C, V]
  Vector g, beta;  ///< [C]
  Matrix key_g;    ///< [C, K], in place of g where gates are key-wise; else no rows
  double scale = 1.0;
  sluice_rule rule = SLUICE_RULE_GATED_DELTA;
};

}  // namespace sluice::ref

#endif  // SLUICE_REF_BLOCK_HPP_
