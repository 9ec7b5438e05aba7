// Gradients in C++: the backward of chunk_forward, as the operators of ops.hpp are called.
// Semantics, shapes and sources are those of sluice.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_GRADIENTS_HPP_
#define SLUICE_GRADIENTS_HPP_

#include <cstdint>
#include <optional>

#include "sluice/ops.hpp"

namespace sluice {

/// sluice_chunk_backward_args.
struct ChunkBackwardArgs {
  using CArgs = sluice_chunk_backward_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_BACKWARD;

  TensorView q{}, k{}, v{}, gate{}, beta{};
  TensorView A_log{}, dt_bias{}, cu_seqlens{}, initial{};
  TensorView d_o{}, d_final{};
  TensorView dq{}, dk{}, dv{}, dgate{}, dbeta{}, dA_log{}, ddt_bias{}, dinitial{};
  std::optional<double> scale{};  ///< empty = K^-0.5
  double l2norm_eps = 1e-6;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  StateLayout state_layout = StateLayout::kKV;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] CArgs c() const noexcept {
    CArgs a{};
    a.struct_size = sizeof a;
    a.q = q, a.k = k, a.v = v, a.gate = gate, a.beta = beta;
    a.A_log = A_log, a.dt_bias = dt_bias, a.cu_seqlens = cu_seqlens, a.initial = initial;
    a.d_o = d_o, a.d_final = d_final;
    a.dq = dq, a.dk = dk, a.dv = dv, a.dgate = dgate, a.dbeta = dbeta;
    a.dA_log = dA_log, a.ddt_bias = ddt_bias, a.dinitial = dinitial;
    a.scale = scale.value_or(0), a.scale_mode = scale.has_value() ? 1 : 0;
    a.l2norm_eps = l2norm_eps;
    a.gate_space = static_cast<int32_t>(gate_space);
    a.beta_space = static_cast<int32_t>(beta_space);
    a.eigenvalues = static_cast<int32_t>(eigenvalues);
    a.qk_norm = static_cast<int32_t>(qk_norm);
    a.head_map = static_cast<int32_t>(head_map);
    a.rule = static_cast<int32_t>(rule);
    a.state_layout = static_cast<int32_t>(state_layout);
    a.implementation = static_cast<int32_t>(implementation);
    return a;
  }
};

/// Gradients of chunk_forward. See sluice_chunk_backward_args.
inline Status chunk_backward(const ChunkBackwardArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_chunk_backward(&c, workspace.c(), stream));
}

}  // namespace sluice

#endif  // SLUICE_GRADIENTS_HPP_
