// The operators in C++: one Args struct each, filled with designated initialisers, and enums in
// place of integers. Semantics, shapes and sources are those of sluice.h, struct by struct.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_OPS_HPP_
#define SLUICE_OPS_HPP_

#include <cstdint>
#include <optional>

#include "sluice/status.hpp"
#include "sluice/tensor_view.hpp"
#include "sluice/workspace.hpp"

namespace sluice {

enum class GateSpace : int32_t { kLog, kLinear, kRaw };
enum class BetaSpace : int32_t { kValue, kLogit };
enum class Eigenvalues : int32_t { kPositive, kNegative };
enum class QkNorm : int32_t { kNone, kL2 };
enum class HeadMap : int32_t { kBlock, kCyclic };
enum class StateLayout : int32_t { kKV, kVK };
enum class Rule : int32_t { kGatedDelta, kLinearAttention };
enum class Split : int32_t { kAuto, kNever, kColumns, kSegments, kLength };
enum class History : int32_t { kAuto, kStrict, kForget };
enum class StateWrites : int32_t { kLast, kPerToken, kNone };
enum class RingFold : int32_t { kAuto, kAlways };
enum class Activation : int32_t { kNone, kSilu, kSigmoid };
enum class ConvStateForm : int32_t { kShift, kRing };
enum class NormRounding : int32_t { kOnce, kHf, kInput };
enum class Packing : int32_t { kFlat, kInterleaved };
enum class Implementation : int32_t { kAuto, kReference, kReferenceChunked, kCpu, kCuda };

/// sluice_state_io.
struct StateIo {
  TensorView initial{}, final{};
  StateLayout layout = StateLayout::kKV;
  TensorView read_slots{}, write_slots{}, has_initial_state{};
  int64_t pad_below = 0;

  [[nodiscard]] sluice_state_io c() const noexcept {
    return {initial,
            final,
            static_cast<int32_t>(layout),
            0,
            pad_below,
            read_slots,
            write_slots,
            has_initial_state};
  }
};

/// sluice_chunk_forward_args.
struct ChunkForwardArgs {
  using CArgs = sluice_chunk_forward_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_FORWARD;

  TensorView q{}, k{}, v{}, gate{}, beta{}, o{};
  TensorView A_log{}, dt_bias{}, cu_seqlens{};
  StateIo state{};
  TensorView checkpoints{}, checkpoint_slots{};
  int64_t checkpoint_every = 0;
  std::optional<double> scale{};  ///< empty = K^-0.5
  double l2norm_eps = 1e-6;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  Implementation implementation = Implementation::kAuto;
  Split split = Split::kAuto;
  int32_t split_value = 0;  ///< of kSegments and kLength
  History history = History::kAuto;
  int64_t max_tokens = 0;  ///< with cu_seqlens: a bound on one sequence's tokens; 0 = unknown

  [[nodiscard]] CArgs c() const noexcept {
    CArgs a{};
    a.struct_size = sizeof a;
    a.q = q, a.k = k, a.v = v, a.gate = gate, a.beta = beta, a.o = o;
    a.A_log = A_log, a.dt_bias = dt_bias, a.cu_seqlens = cu_seqlens;
    a.state = state.c();
    a.checkpoints = checkpoints, a.checkpoint_slots = checkpoint_slots;
    a.checkpoint_every = checkpoint_every;
    a.scale = scale.value_or(0), a.scale_mode = scale.has_value() ? 1 : 0;
    a.l2norm_eps = l2norm_eps;
    a.gate_space = static_cast<int32_t>(gate_space);
    a.beta_space = static_cast<int32_t>(beta_space);
    a.eigenvalues = static_cast<int32_t>(eigenvalues);
    a.qk_norm = static_cast<int32_t>(qk_norm);
    a.head_map = static_cast<int32_t>(head_map);
    a.rule = static_cast<int32_t>(rule);
    a.implementation = static_cast<int32_t>(implementation);
    a.split = static_cast<int32_t>(split);
    a.split_value = split_value;
    a.history = static_cast<int32_t>(history);
    a.max_tokens = max_tokens;
    return a;
  }
};

/// sluice_replay_ring.
struct ReplayRing {
  TensorView k{}, delta{}, decay{}, position{}, checkpoint{}, next_checkpoint{};
  RingFold fold = RingFold::kAuto;

  [[nodiscard]] sluice_replay_ring c() const noexcept {
    return {k, delta, decay, position, checkpoint, next_checkpoint, static_cast<int32_t>(fold), 0};
  }
};

/// sluice_recurrent_step_args.
struct RecurrentStepArgs {
  using CArgs = sluice_recurrent_step_args;
  static constexpr int kOp = SLUICE_OP_RECURRENT_STEP;

  TensorView q{}, k{}, v{}, gate{}, beta{}, o{};
  TensorView A_log{}, dt_bias{}, cu_seqlens{}, num_accepted{};
  StateIo state{};
  int64_t max_tokens = 0;
  std::optional<double> scale{};  ///< empty = K^-0.5
  double l2norm_eps = 1e-6;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  StateWrites state_writes = StateWrites::kLast;
  Implementation implementation = Implementation::kAuto;
  ReplayRing ring{};

  [[nodiscard]] CArgs c() const noexcept {
    CArgs a{};
    a.struct_size = sizeof a;
    a.q = q, a.k = k, a.v = v, a.gate = gate, a.beta = beta, a.o = o;
    a.A_log = A_log, a.dt_bias = dt_bias, a.cu_seqlens = cu_seqlens;
    a.num_accepted = num_accepted;
    a.ring = ring.c();
    a.state = state.c();
    a.max_tokens = max_tokens;
    a.scale = scale.value_or(0), a.scale_mode = scale.has_value() ? 1 : 0;
    a.l2norm_eps = l2norm_eps;
    a.gate_space = static_cast<int32_t>(gate_space);
    a.beta_space = static_cast<int32_t>(beta_space);
    a.eigenvalues = static_cast<int32_t>(eigenvalues);
    a.qk_norm = static_cast<int32_t>(qk_norm);
    a.head_map = static_cast<int32_t>(head_map);
    a.rule = static_cast<int32_t>(rule);
    a.state_writes = static_cast<int32_t>(state_writes);
    a.implementation = static_cast<int32_t>(implementation);
    return a;
  }
};

/// sluice_conv_state_io.
struct ConvStateIo {
  TensorView initial{}, final{};
  TensorView read_slots{}, write_slots{}, has_initial_state{}, num_accepted{}, ring_position{};
  int64_t pad_below = 0;
  ConvStateForm form = ConvStateForm::kShift;

  [[nodiscard]] sluice_conv_state_io c() const noexcept {
    return {initial,
            final,
            read_slots,
            write_slots,
            has_initial_state,
            num_accepted,
            ring_position,
            pad_below,
            static_cast<int32_t>(form),
            0};
  }
};

/// sluice_causal_conv1d_args.
struct CausalConv1dArgs {
  using CArgs = sluice_causal_conv1d_args;
  static constexpr int kOp = SLUICE_OP_CAUSAL_CONV1D;

  TensorView x{}, weight{}, bias{}, out{}, cu_seqlens{};
  ConvStateIo state{};
  Activation activation = Activation::kNone;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] CArgs c() const noexcept {
    return {sizeof(CArgs),
            x,
            weight,
            bias,
            out,
            cu_seqlens,
            state.c(),
            static_cast<int32_t>(activation),
            static_cast<int32_t>(implementation)};
  }
};

/// sluice_gated_rms_norm_args.
struct GatedRmsNormArgs {
  using CArgs = sluice_gated_rms_norm_args;
  static constexpr int kOp = SLUICE_OP_GATED_RMS_NORM;

  TensorView x{}, z{}, weight{}, out{};
  double eps = 1e-6;
  Activation activation = Activation::kSilu;
  NormRounding rounding = NormRounding::kOnce;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] CArgs c() const noexcept {
    return {sizeof(CArgs),
            x,
            z,
            weight,
            out,
            eps,
            static_cast<int32_t>(activation),
            static_cast<int32_t>(rounding),
            static_cast<int32_t>(implementation),
            0};
  }
};

/// sluice_layer_args, for layer_prefill() and layer_decode().
struct LayerArgs {
  using CArgs = sluice_layer_args;

  TensorView qkv{}, z{}, b{}, a{};
  TensorView conv_weight{}, conv_bias{}, A_log{}, dt_bias{}, norm_weight{};
  TensorView out{}, core_out{}, cu_seqlens{};
  TensorView conv_initial{}, conv_final{}, ring_position{}, num_accepted{};
  StateIo state{};
  int64_t num_k_heads = 0, num_v_heads = 0, head_k_dim = 0, head_v_dim = 0;
  int64_t max_tokens = 0;
  std::optional<double> scale{};  ///< empty = K^-0.5
  double l2norm_eps = 1e-6, norm_eps = 1e-6;
  Packing packing = Packing::kFlat;
  ConvStateForm conv_state_form = ConvStateForm::kShift;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  HeadMap head_map = HeadMap::kBlock;
  Activation gate_activation = Activation::kSilu;
  NormRounding rounding = NormRounding::kOnce;
  StateWrites state_writes = StateWrites::kLast;
  Implementation implementation = Implementation::kAuto;
  ReplayRing ring{};  ///< layer_decode

  [[nodiscard]] CArgs c() const noexcept {
    CArgs c{};
    c.struct_size = sizeof c;
    c.qkv = qkv, c.z = z, c.b = b, c.a = a;
    c.conv_weight = conv_weight, c.conv_bias = conv_bias;
    c.A_log = A_log, c.dt_bias = dt_bias, c.norm_weight = norm_weight;
    c.out = out, c.core_out = core_out, c.cu_seqlens = cu_seqlens;
    c.conv_initial = conv_initial, c.conv_final = conv_final;
    c.ring_position = ring_position, c.num_accepted = num_accepted;
    c.state = state.c();
    c.num_k_heads = num_k_heads, c.num_v_heads = num_v_heads;
    c.head_k_dim = head_k_dim, c.head_v_dim = head_v_dim;
    c.max_tokens = max_tokens;
    c.scale = scale.value_or(0), c.scale_mode = scale.has_value() ? 1 : 0;
    c.l2norm_eps = l2norm_eps, c.norm_eps = norm_eps;
    c.packing = static_cast<int32_t>(packing);
    c.conv_state_form = static_cast<int32_t>(conv_state_form);
    c.eigenvalues = static_cast<int32_t>(eigenvalues);
    c.head_map = static_cast<int32_t>(head_map);
    c.gate_activation = static_cast<int32_t>(gate_activation);
    c.rounding = static_cast<int32_t>(rounding);
    c.state_writes = static_cast<int32_t>(state_writes);
    c.implementation = static_cast<int32_t>(implementation);
    c.ring = ring.c();
    return c;
  }
};

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
