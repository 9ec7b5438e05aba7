// Calls the operators from C++: each takes its struct of arguments.hpp, filled with designated
// initialisers. Semantics, shapes and sources are those of sluice.h, struct by struct.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_OPS_HPP_
#define SLUICE_OPS_HPP_

#include "sluice/arguments.hpp"
#include "sluice/status.hpp"
#include "sluice/workspace.hpp"

namespace sluice {

/// Null on the CPU; a cudaStream_t as a pointer on CUDA.
using Stream = void*;

namespace detail {
inline Status last_status(int code) noexcept {
  return code == SLUICE_OK ? ok_status()
                           : Status::failure(static_cast<Code>(code), "%s", sluice_last_error());
}
inline Result<WorkspaceSize> workspace_size(int op, const void* args) noexcept {
  Result<WorkspaceSize> result;
  result.status = last_status(sluice_workspace_size(op, args, &result.value.bytes));
  return result;
}
}  // namespace detail

/// gdn_prefill. See sluice_chunk_forward_args.
inline Status chunk_forward(const ChunkForwardArgs& args, Workspace workspace = {},
                            Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_chunk_forward(&c, workspace.c(), stream));
}
/// gdn_decode. See sluice_recurrent_step_args.
inline Status recurrent_step(const RecurrentStepArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_recurrent_step(&c, workspace.c(), stream));
}
/// Gradients of chunk_forward. See sluice_chunk_backward_args.
inline Status chunk_backward(const ChunkBackwardArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_chunk_backward(&c, workspace.c(), stream));
}
/// The maps of pieces of sequences. See sluice_chunk_summary_args.
inline Status chunk_summary(const ChunkSummaryArgs& args, Workspace workspace = {},
                            Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_chunk_summary(&c, workspace.c(), stream));
}
/// The states that enter pieces, from their maps. See sluice_state_fold_args.
inline Status state_fold(const StateFoldArgs& args, Workspace workspace = {},
                         Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_state_fold(&c, workspace.c(), stream));
}
/// See sluice_causal_conv1d_args.
inline Status causal_conv1d(const CausalConv1dArgs& args, Workspace workspace = {},
                            Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_causal_conv1d(&c, workspace.c(), stream));
}
/// See sluice_gated_rms_norm_args.
inline Status gated_rms_norm(const GatedRmsNormArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_gated_rms_norm(&c, workspace.c(), stream));
}
/// See sluice_causal_conv1d_backward_args.
inline Status causal_conv1d_backward(const CausalConv1dBackwardArgs& args, Workspace workspace = {},
                                     Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_causal_conv1d_backward(&c, workspace.c(), stream));
}
/// See sluice_gated_rms_norm_backward_args.
inline Status gated_rms_norm_backward(const GatedRmsNormBackwardArgs& args,
                                      Workspace workspace = {}, Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_gated_rms_norm_backward(&c, workspace.c(), stream));
}
/// See sluice_layer_backward_args.
inline Status layer_backward(const LayerBackwardArgs& args, Workspace workspace = {},
                             Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_layer_backward(&c, workspace.c(), stream));
}
/// See sluice_layer_args.
inline Status layer_prefill(const LayerArgs& args, Workspace workspace = {},
                            Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_layer_prefill(&c, workspace.c(), stream));
}
/// See sluice_layer_args.
inline Status layer_decode(const LayerArgs& args, Workspace workspace = {},
                           Stream stream = nullptr) noexcept {
  const auto c = args.c();
  return detail::last_status(sluice_layer_decode(&c, workspace.c(), stream));
}

/// Bytes of workspace for a call with these arguments; see sluice_workspace_size().
template <class Args>
[[nodiscard]] Result<WorkspaceSize> workspace_size(const Args& args) noexcept {
  const auto c = args.c();
  return detail::workspace_size(Args::kOp, &c);
}
[[nodiscard]] inline Result<WorkspaceSize> layer_prefill_workspace(const LayerArgs& args) noexcept {
  const auto c = args.c();
  return detail::workspace_size(SLUICE_OP_LAYER_PREFILL, &c);
}
[[nodiscard]] inline Result<WorkspaceSize> layer_decode_workspace(const LayerArgs& args) noexcept {
  const auto c = args.c();
  return detail::workspace_size(SLUICE_OP_LAYER_DECODE, &c);
}

/// Whether the call would run, and by which kernel; see sluice_supported(). op: sluice_op.
struct KernelChoice {
  char name[96] = {};
};
template <class Args>
[[nodiscard]] Result<KernelChoice> supported(int op, const Args& args) noexcept {
  Result<KernelChoice> result;
  const auto c = args.c();
  result.status =
      detail::last_status(sluice_supported(op, &c, result.value.name, sizeof result.value.name));
  return result;
}

}  // namespace sluice

#endif  // SLUICE_OPS_HPP_
