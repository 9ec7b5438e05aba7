// Defines one struct of arguments for each operator (LINT length: generated). Made by ops/generate.py from ops/manifest.json.
// SPDX-License-Identifier: Apache-2.0
// clang-format off
#ifndef SLUICE_ARGUMENTS_HPP_
#define SLUICE_ARGUMENTS_HPP_

#include <cstdint>
#include <optional>

#include "sluice/enumerations.hpp"
#include "sluice/tensor_view.hpp"

namespace sluice {

/// sluice_state_io.
struct StateIo {
  TensorView initial{};
  TensorView final{};
  StateLayout layout = StateLayout::kKV;
  TensorView read_slots{};
  TensorView write_slots{};
  TensorView has_initial_state{};
  int64_t pad_below = 0;

  [[nodiscard]] sluice_state_io c() const noexcept {
    sluice_state_io result{};
    result.initial = initial;
    result.final = final;
    result.layout = static_cast<int32_t>(layout);
    result.read_slots = read_slots;
    result.write_slots = write_slots;
    result.has_initial_state = has_initial_state;
    result.pad_below = pad_below;
    return result;
  }
};

/// sluice_replay_ring.
struct ReplayRing {
  TensorView k{};
  TensorView delta{};
  TensorView decay{};
  TensorView position{};
  TensorView checkpoint{};
  TensorView next_checkpoint{};
  RingFold fold = RingFold::kAuto;

  [[nodiscard]] sluice_replay_ring c() const noexcept {
    sluice_replay_ring result{};
    result.k = k;
    result.delta = delta;
    result.decay = decay;
    result.position = position;
    result.checkpoint = checkpoint;
    result.next_checkpoint = next_checkpoint;
    result.fold = static_cast<int32_t>(fold);
    return result;
  }
};

/// sluice_conv_state_io.
struct ConvStateIo {
  TensorView initial{};
  TensorView final{};
  TensorView read_slots{};
  TensorView write_slots{};
  TensorView has_initial_state{};
  TensorView num_accepted{};
  TensorView ring_position{};
  int64_t pad_below = 0;
  ConvStateForm form = ConvStateForm::kShift;

  [[nodiscard]] sluice_conv_state_io c() const noexcept {
    sluice_conv_state_io result{};
    result.initial = initial;
    result.final = final;
    result.read_slots = read_slots;
    result.write_slots = write_slots;
    result.has_initial_state = has_initial_state;
    result.num_accepted = num_accepted;
    result.ring_position = ring_position;
    result.pad_below = pad_below;
    result.form = static_cast<int32_t>(form);
    return result;
  }
};

/// sluice_chunk_forward_args.
struct ChunkForwardArgs {
  using CArgs = sluice_chunk_forward_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_FORWARD;
  TensorView q{};
  TensorView k{};
  TensorView v{};
  TensorView gate{};
  TensorView beta{};
  TensorView o{};
  TensorView A_log{};
  TensorView dt_bias{};
  TensorView cu_seqlens{};
  StateIo state{};
  TensorView checkpoints{};
  TensorView checkpoint_slots{};
  int64_t checkpoint_every = 0;
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double gate_lower_bound = 0.0;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  Implementation implementation = Implementation::kAuto;
  Split split = Split::kAuto;
  int32_t split_value = 0;
  History history = History::kAuto;
  int64_t max_tokens = 0;

  [[nodiscard]] sluice_chunk_forward_args c() const noexcept {
    sluice_chunk_forward_args result{};
    result.struct_size = sizeof result;
    result.q = q;
    result.k = k;
    result.v = v;
    result.gate = gate;
    result.beta = beta;
    result.o = o;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    result.cu_seqlens = cu_seqlens;
    result.state = state.c();
    result.checkpoints = checkpoints;
    result.checkpoint_slots = checkpoint_slots;
    result.checkpoint_every = checkpoint_every;
    result.options.scale = scale.value_or(0);
    result.options.scale_mode = scale.has_value() ? 1 : 0;
    result.options.l2norm_eps = l2norm_eps;
    result.options.gate_lower_bound = gate_lower_bound;
    result.options.gate_space = static_cast<int32_t>(gate_space);
    result.options.beta_space = static_cast<int32_t>(beta_space);
    result.options.eigenvalues = static_cast<int32_t>(eigenvalues);
    result.options.qk_norm = static_cast<int32_t>(qk_norm);
    result.options.head_map = static_cast<int32_t>(head_map);
    result.options.rule = static_cast<int32_t>(rule);
    result.implementation = static_cast<int32_t>(implementation);
    result.split = static_cast<int32_t>(split);
    result.split_value = split_value;
    result.history = static_cast<int32_t>(history);
    result.max_tokens = max_tokens;
    return result;
  }
};

/// sluice_recurrent_step_args.
struct RecurrentStepArgs {
  using CArgs = sluice_recurrent_step_args;
  static constexpr int kOp = SLUICE_OP_RECURRENT_STEP;
  TensorView q{};
  TensorView k{};
  TensorView v{};
  TensorView gate{};
  TensorView beta{};
  TensorView o{};
  TensorView A_log{};
  TensorView dt_bias{};
  TensorView cu_seqlens{};
  TensorView num_accepted{};
  StateIo state{};
  int64_t max_tokens = 0;
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double gate_lower_bound = 0.0;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  StateWrites state_writes = StateWrites::kLast;
  Implementation implementation = Implementation::kAuto;
  ReplayRing ring{};

  [[nodiscard]] sluice_recurrent_step_args c() const noexcept {
    sluice_recurrent_step_args result{};
    result.struct_size = sizeof result;
    result.q = q;
    result.k = k;
    result.v = v;
    result.gate = gate;
    result.beta = beta;
    result.o = o;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    result.cu_seqlens = cu_seqlens;
    result.num_accepted = num_accepted;
    result.state = state.c();
    result.max_tokens = max_tokens;
    result.options.scale = scale.value_or(0);
    result.options.scale_mode = scale.has_value() ? 1 : 0;
    result.options.l2norm_eps = l2norm_eps;
    result.options.gate_lower_bound = gate_lower_bound;
    result.options.gate_space = static_cast<int32_t>(gate_space);
    result.options.beta_space = static_cast<int32_t>(beta_space);
    result.options.eigenvalues = static_cast<int32_t>(eigenvalues);
    result.options.qk_norm = static_cast<int32_t>(qk_norm);
    result.options.head_map = static_cast<int32_t>(head_map);
    result.options.rule = static_cast<int32_t>(rule);
    result.state_writes = static_cast<int32_t>(state_writes);
    result.implementation = static_cast<int32_t>(implementation);
    result.ring = ring.c();
    return result;
  }
};

/// sluice_causal_conv1d_args.
struct CausalConv1dArgs {
  using CArgs = sluice_causal_conv1d_args;
  static constexpr int kOp = SLUICE_OP_CAUSAL_CONV1D;
  TensorView x{};
  TensorView weight{};
  TensorView bias{};
  TensorView out{};
  TensorView cu_seqlens{};
  ConvStateIo state{};
  Activation activation = Activation::kNone;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] sluice_causal_conv1d_args c() const noexcept {
    sluice_causal_conv1d_args result{};
    result.struct_size = sizeof result;
    result.x = x;
    result.weight = weight;
    result.bias = bias;
    result.out = out;
    result.cu_seqlens = cu_seqlens;
    result.state = state.c();
    result.activation = static_cast<int32_t>(activation);
    result.implementation = static_cast<int32_t>(implementation);
    return result;
  }
};

/// sluice_gated_rms_norm_args.
struct GatedRmsNormArgs {
  using CArgs = sluice_gated_rms_norm_args;
  static constexpr int kOp = SLUICE_OP_GATED_RMS_NORM;
  TensorView x{};
  TensorView z{};
  TensorView weight{};
  TensorView out{};
  double eps = 1e-06;
  Activation activation = Activation::kSilu;
  NormRounding rounding = NormRounding::kOnce;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] sluice_gated_rms_norm_args c() const noexcept {
    sluice_gated_rms_norm_args result{};
    result.struct_size = sizeof result;
    result.x = x;
    result.z = z;
    result.weight = weight;
    result.out = out;
    result.eps = eps;
    result.activation = static_cast<int32_t>(activation);
    result.rounding = static_cast<int32_t>(rounding);
    result.implementation = static_cast<int32_t>(implementation);
    return result;
  }
};

/// sluice_layer_args.
struct LayerArgs {
  using CArgs = sluice_layer_args;
  TensorView qkv{};
  TensorView z{};
  TensorView b{};
  TensorView a{};
  TensorView conv_weight{};
  TensorView conv_bias{};
  TensorView A_log{};
  TensorView dt_bias{};
  TensorView norm_weight{};
  TensorView out{};
  TensorView core_out{};
  TensorView cu_seqlens{};
  TensorView conv_initial{};
  TensorView conv_final{};
  TensorView ring_position{};
  TensorView num_accepted{};
  StateIo state{};
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;
  int64_t head_k_dim = 0;
  int64_t head_v_dim = 0;
  int64_t max_tokens = 0;
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double norm_eps = 1e-06;
  Packing packing = Packing::kFlat;
  ConvStateForm conv_state_form = ConvStateForm::kShift;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  HeadMap head_map = HeadMap::kBlock;
  Activation gate_activation = Activation::kSilu;
  NormRounding rounding = NormRounding::kOnce;
  StateWrites state_writes = StateWrites::kLast;
  Implementation implementation = Implementation::kAuto;
  ReplayRing ring{};
  TensorView k{};
  TensorView v{};
  TensorView k_conv_weight{};
  TensorView v_conv_weight{};
  TensorView k_conv_bias{};
  TensorView v_conv_bias{};
  TensorView k_conv_initial{};
  TensorView v_conv_initial{};
  TensorView k_conv_final{};
  TensorView v_conv_final{};
  double gate_lower_bound = 0.0;

  [[nodiscard]] sluice_layer_args c() const noexcept {
    sluice_layer_args result{};
    result.struct_size = sizeof result;
    result.qkv = qkv;
    result.z = z;
    result.b = b;
    result.a = a;
    result.conv_weight = conv_weight;
    result.conv_bias = conv_bias;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    result.norm_weight = norm_weight;
    result.out = out;
    result.core_out = core_out;
    result.cu_seqlens = cu_seqlens;
    result.conv_initial = conv_initial;
    result.conv_final = conv_final;
    result.ring_position = ring_position;
    result.num_accepted = num_accepted;
    result.state = state.c();
    result.num_k_heads = num_k_heads;
    result.num_v_heads = num_v_heads;
    result.head_k_dim = head_k_dim;
    result.head_v_dim = head_v_dim;
    result.max_tokens = max_tokens;
    result.scale = scale.value_or(0);
    result.scale_mode = scale.has_value() ? 1 : 0;
    result.l2norm_eps = l2norm_eps;
    result.norm_eps = norm_eps;
    result.packing = static_cast<int32_t>(packing);
    result.conv_state_form = static_cast<int32_t>(conv_state_form);
    result.eigenvalues = static_cast<int32_t>(eigenvalues);
    result.head_map = static_cast<int32_t>(head_map);
    result.gate_activation = static_cast<int32_t>(gate_activation);
    result.rounding = static_cast<int32_t>(rounding);
    result.state_writes = static_cast<int32_t>(state_writes);
    result.implementation = static_cast<int32_t>(implementation);
    result.ring = ring.c();
    result.k = k;
    result.v = v;
    result.k_conv_weight = k_conv_weight;
    result.v_conv_weight = v_conv_weight;
    result.k_conv_bias = k_conv_bias;
    result.v_conv_bias = v_conv_bias;
    result.k_conv_initial = k_conv_initial;
    result.v_conv_initial = v_conv_initial;
    result.k_conv_final = k_conv_final;
    result.v_conv_final = v_conv_final;
    result.gate_lower_bound = gate_lower_bound;
    return result;
  }
};

/// sluice_chunk_stage_args.
struct ChunkStageArgs {
  using CArgs = sluice_chunk_stage_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_STAGE;
  Stage stage = Stage::kChunkCumsum;
  TensorView q{};
  TensorView k{};
  TensorView v{};
  TensorView gate{};
  TensorView beta{};
  TensorView g_cumsum{};
  TensorView A{};
  TensorView A_inverse{};
  TensorView w{};
  TensorView u{};
  TensorView v_new{};
  TensorView h{};
  TensorView o{};
  TensorView cu_seqlens{};
  StateIo state{};
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  int32_t chunk_size = 0;
  Rule rule = Rule::kGatedDelta;
  HeadMap head_map = HeadMap::kBlock;
  Direction direction = Direction::kForward;
  Triangle triangle = Triangle::kLower;
  Matrices matrices = Matrices::kChunks;
  Implementation implementation = Implementation::kAuto;
  GateSpace gate_space = GateSpace::kLog;
  double gate_lower_bound = 0.0;
  TensorView A_log{};
  TensorView dt_bias{};

  [[nodiscard]] sluice_chunk_stage_args c() const noexcept {
    sluice_chunk_stage_args result{};
    result.struct_size = sizeof result;
    result.stage = static_cast<int32_t>(stage);
    result.q = q;
    result.k = k;
    result.v = v;
    result.gate = gate;
    result.beta = beta;
    result.g_cumsum = g_cumsum;
    result.A = A;
    result.A_inverse = A_inverse;
    result.w = w;
    result.u = u;
    result.v_new = v_new;
    result.h = h;
    result.o = o;
    result.cu_seqlens = cu_seqlens;
    result.state = state.c();
    result.scale = scale.value_or(0);
    result.scale_mode = scale.has_value() ? 1 : 0;
    result.chunk_size = chunk_size;
    result.rule = static_cast<int32_t>(rule);
    result.head_map = static_cast<int32_t>(head_map);
    result.direction = static_cast<int32_t>(direction);
    result.triangle = static_cast<int32_t>(triangle);
    result.matrices = static_cast<int32_t>(matrices);
    result.implementation = static_cast<int32_t>(implementation);
    result.gate_space = static_cast<int32_t>(gate_space);
    result.gate_lower_bound = gate_lower_bound;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    return result;
  }
};

/// sluice_chunk_backward_args.
struct ChunkBackwardArgs {
  using CArgs = sluice_chunk_backward_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_BACKWARD;
  TensorView q{};
  TensorView k{};
  TensorView v{};
  TensorView gate{};
  TensorView beta{};
  TensorView A_log{};
  TensorView dt_bias{};
  TensorView cu_seqlens{};
  TensorView initial{};
  TensorView d_o{};
  TensorView d_final{};
  TensorView dq{};
  TensorView dk{};
  TensorView dv{};
  TensorView dgate{};
  TensorView dbeta{};
  TensorView dA_log{};
  TensorView ddt_bias{};
  TensorView dinitial{};
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double gate_lower_bound = 0.0;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  StateLayout state_layout = StateLayout::kKV;
  Implementation implementation = Implementation::kAuto;
  Split split = Split::kAuto;
  int32_t split_value = 0;

  [[nodiscard]] sluice_chunk_backward_args c() const noexcept {
    sluice_chunk_backward_args result{};
    result.struct_size = sizeof result;
    result.q = q;
    result.k = k;
    result.v = v;
    result.gate = gate;
    result.beta = beta;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    result.cu_seqlens = cu_seqlens;
    result.initial = initial;
    result.d_o = d_o;
    result.d_final = d_final;
    result.dq = dq;
    result.dk = dk;
    result.dv = dv;
    result.dgate = dgate;
    result.dbeta = dbeta;
    result.dA_log = dA_log;
    result.ddt_bias = ddt_bias;
    result.dinitial = dinitial;
    result.options.scale = scale.value_or(0);
    result.options.scale_mode = scale.has_value() ? 1 : 0;
    result.options.l2norm_eps = l2norm_eps;
    result.options.gate_lower_bound = gate_lower_bound;
    result.options.gate_space = static_cast<int32_t>(gate_space);
    result.options.beta_space = static_cast<int32_t>(beta_space);
    result.options.eigenvalues = static_cast<int32_t>(eigenvalues);
    result.options.qk_norm = static_cast<int32_t>(qk_norm);
    result.options.head_map = static_cast<int32_t>(head_map);
    result.options.rule = static_cast<int32_t>(rule);
    result.state_layout = static_cast<int32_t>(state_layout);
    result.implementation = static_cast<int32_t>(implementation);
    result.split = static_cast<int32_t>(split);
    result.split_value = split_value;
    return result;
  }
};

/// sluice_chunk_summary_args.
struct ChunkSummaryArgs {
  using CArgs = sluice_chunk_summary_args;
  static constexpr int kOp = SLUICE_OP_CHUNK_SUMMARY;
  TensorView q{};
  TensorView k{};
  TensorView v{};
  TensorView gate{};
  TensorView beta{};
  TensorView d_o{};
  TensorView A_log{};
  TensorView dt_bias{};
  TensorView cu_seqlens{};
  TensorView wanted{};
  TensorView transition{};
  TensorView addend{};
  TensorView forgotten{};
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double gate_lower_bound = 0.0;
  GateSpace gate_space = GateSpace::kLog;
  BetaSpace beta_space = BetaSpace::kValue;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  QkNorm qk_norm = QkNorm::kNone;
  HeadMap head_map = HeadMap::kBlock;
  Rule rule = Rule::kGatedDelta;
  Direction direction = Direction::kForward;
  History history = History::kAuto;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] sluice_chunk_summary_args c() const noexcept {
    sluice_chunk_summary_args result{};
    result.struct_size = sizeof result;
    result.q = q;
    result.k = k;
    result.v = v;
    result.gate = gate;
    result.beta = beta;
    result.d_o = d_o;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    result.cu_seqlens = cu_seqlens;
    result.wanted = wanted;
    result.transition = transition;
    result.addend = addend;
    result.forgotten = forgotten;
    result.options.scale = scale.value_or(0);
    result.options.scale_mode = scale.has_value() ? 1 : 0;
    result.options.l2norm_eps = l2norm_eps;
    result.options.gate_lower_bound = gate_lower_bound;
    result.options.gate_space = static_cast<int32_t>(gate_space);
    result.options.beta_space = static_cast<int32_t>(beta_space);
    result.options.eigenvalues = static_cast<int32_t>(eigenvalues);
    result.options.qk_norm = static_cast<int32_t>(qk_norm);
    result.options.head_map = static_cast<int32_t>(head_map);
    result.options.rule = static_cast<int32_t>(rule);
    result.direction = static_cast<int32_t>(direction);
    result.history = static_cast<int32_t>(history);
    result.implementation = static_cast<int32_t>(implementation);
    return result;
  }
};

/// sluice_state_fold_args.
struct StateFoldArgs {
  using CArgs = sluice_state_fold_args;
  static constexpr int kOp = SLUICE_OP_STATE_FOLD;
  TensorView transition{};
  TensorView addend{};
  TensorView forgotten{};
  TensorView cu_chains{};
  TensorView route_pieces{};
  TensorView route_states{};
  TensorView initial{};
  TensorView entering{};
  TensorView final{};
  Direction direction = Direction::kForward;
  StateLayout state_layout = StateLayout::kKV;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] sluice_state_fold_args c() const noexcept {
    sluice_state_fold_args result{};
    result.struct_size = sizeof result;
    result.transition = transition;
    result.addend = addend;
    result.forgotten = forgotten;
    result.cu_chains = cu_chains;
    result.route_pieces = route_pieces;
    result.route_states = route_states;
    result.initial = initial;
    result.entering = entering;
    result.final = final;
    result.direction = static_cast<int32_t>(direction);
    result.state_layout = static_cast<int32_t>(state_layout);
    result.implementation = static_cast<int32_t>(implementation);
    return result;
  }
};

/// sluice_causal_conv1d_backward_args.
struct CausalConv1dBackwardArgs {
  using CArgs = sluice_causal_conv1d_backward_args;
  static constexpr int kOp = SLUICE_OP_CAUSAL_CONV1D_BACKWARD;
  TensorView x{};
  TensorView weight{};
  TensorView bias{};
  TensorView cu_seqlens{};
  TensorView initial{};
  TensorView d_out{};
  TensorView d_final{};
  TensorView dx{};
  TensorView dweight{};
  TensorView dbias{};
  TensorView dinitial{};
  Activation activation = Activation::kNone;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] sluice_causal_conv1d_backward_args c() const noexcept {
    sluice_causal_conv1d_backward_args result{};
    result.struct_size = sizeof result;
    result.x = x;
    result.weight = weight;
    result.bias = bias;
    result.cu_seqlens = cu_seqlens;
    result.initial = initial;
    result.d_out = d_out;
    result.d_final = d_final;
    result.dx = dx;
    result.dweight = dweight;
    result.dbias = dbias;
    result.dinitial = dinitial;
    result.activation = static_cast<int32_t>(activation);
    result.implementation = static_cast<int32_t>(implementation);
    return result;
  }
};

/// sluice_gated_rms_norm_backward_args.
struct GatedRmsNormBackwardArgs {
  using CArgs = sluice_gated_rms_norm_backward_args;
  static constexpr int kOp = SLUICE_OP_GATED_RMS_NORM_BACKWARD;
  TensorView x{};
  TensorView z{};
  TensorView weight{};
  TensorView d_out{};
  TensorView dx{};
  TensorView dz{};
  TensorView dweight{};
  double eps = 1e-06;
  Activation activation = Activation::kSilu;
  NormRounding rounding = NormRounding::kOnce;
  Implementation implementation = Implementation::kAuto;

  [[nodiscard]] sluice_gated_rms_norm_backward_args c() const noexcept {
    sluice_gated_rms_norm_backward_args result{};
    result.struct_size = sizeof result;
    result.x = x;
    result.z = z;
    result.weight = weight;
    result.d_out = d_out;
    result.dx = dx;
    result.dz = dz;
    result.dweight = dweight;
    result.eps = eps;
    result.activation = static_cast<int32_t>(activation);
    result.rounding = static_cast<int32_t>(rounding);
    result.implementation = static_cast<int32_t>(implementation);
    return result;
  }
};

/// sluice_layer_backward_args.
struct LayerBackwardArgs {
  using CArgs = sluice_layer_backward_args;
  static constexpr int kOp = SLUICE_OP_LAYER_BACKWARD;
  TensorView qkv{};
  TensorView z{};
  TensorView b{};
  TensorView a{};
  TensorView conv_weight{};
  TensorView conv_bias{};
  TensorView A_log{};
  TensorView dt_bias{};
  TensorView norm_weight{};
  TensorView cu_seqlens{};
  TensorView conv_initial{};
  TensorView initial{};
  TensorView core_out{};
  TensorView d_out{};
  TensorView d_final{};
  TensorView d_conv_final{};
  TensorView dqkv{};
  TensorView dz{};
  TensorView db{};
  TensorView da{};
  TensorView dconv_weight{};
  TensorView dconv_bias{};
  TensorView dA_log{};
  TensorView ddt_bias{};
  TensorView dnorm_weight{};
  TensorView dinitial{};
  TensorView dconv_initial{};
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;
  int64_t head_k_dim = 0;
  int64_t head_v_dim = 0;
  std::optional<double> scale{};  ///< factor of o; absent = K^-0.5; 0.0 is zero
  double l2norm_eps = 1e-06;
  double norm_eps = 1e-06;
  Packing packing = Packing::kFlat;
  Eigenvalues eigenvalues = Eigenvalues::kPositive;
  HeadMap head_map = HeadMap::kBlock;
  Activation gate_activation = Activation::kSilu;
  NormRounding rounding = NormRounding::kOnce;
  StateLayout state_layout = StateLayout::kKV;
  Implementation implementation = Implementation::kAuto;
  TensorView k{};
  TensorView v{};
  TensorView k_conv_weight{};
  TensorView v_conv_weight{};
  TensorView k_conv_bias{};
  TensorView v_conv_bias{};
  TensorView k_conv_initial{};
  TensorView v_conv_initial{};
  TensorView d_k_conv_final{};
  TensorView d_v_conv_final{};
  TensorView dk{};
  TensorView dv{};
  TensorView dk_conv_weight{};
  TensorView dv_conv_weight{};
  TensorView dk_conv_bias{};
  TensorView dv_conv_bias{};
  TensorView dk_conv_initial{};
  TensorView dv_conv_initial{};
  double gate_lower_bound = 0.0;

  [[nodiscard]] sluice_layer_backward_args c() const noexcept {
    sluice_layer_backward_args result{};
    result.struct_size = sizeof result;
    result.qkv = qkv;
    result.z = z;
    result.b = b;
    result.a = a;
    result.conv_weight = conv_weight;
    result.conv_bias = conv_bias;
    result.A_log = A_log;
    result.dt_bias = dt_bias;
    result.norm_weight = norm_weight;
    result.cu_seqlens = cu_seqlens;
    result.conv_initial = conv_initial;
    result.initial = initial;
    result.core_out = core_out;
    result.d_out = d_out;
    result.d_final = d_final;
    result.d_conv_final = d_conv_final;
    result.dqkv = dqkv;
    result.dz = dz;
    result.db = db;
    result.da = da;
    result.dconv_weight = dconv_weight;
    result.dconv_bias = dconv_bias;
    result.dA_log = dA_log;
    result.ddt_bias = ddt_bias;
    result.dnorm_weight = dnorm_weight;
    result.dinitial = dinitial;
    result.dconv_initial = dconv_initial;
    result.num_k_heads = num_k_heads;
    result.num_v_heads = num_v_heads;
    result.head_k_dim = head_k_dim;
    result.head_v_dim = head_v_dim;
    result.scale = scale.value_or(0);
    result.scale_mode = scale.has_value() ? 1 : 0;
    result.l2norm_eps = l2norm_eps;
    result.norm_eps = norm_eps;
    result.packing = static_cast<int32_t>(packing);
    result.eigenvalues = static_cast<int32_t>(eigenvalues);
    result.head_map = static_cast<int32_t>(head_map);
    result.gate_activation = static_cast<int32_t>(gate_activation);
    result.rounding = static_cast<int32_t>(rounding);
    result.state_layout = static_cast<int32_t>(state_layout);
    result.implementation = static_cast<int32_t>(implementation);
    result.k = k;
    result.v = v;
    result.k_conv_weight = k_conv_weight;
    result.v_conv_weight = v_conv_weight;
    result.k_conv_bias = k_conv_bias;
    result.v_conv_bias = v_conv_bias;
    result.k_conv_initial = k_conv_initial;
    result.v_conv_initial = v_conv_initial;
    result.d_k_conv_final = d_k_conv_final;
    result.d_v_conv_final = d_v_conv_final;
    result.dk = dk;
    result.dv = dv;
    result.dk_conv_weight = dk_conv_weight;
    result.dv_conv_weight = dv_conv_weight;
    result.dk_conv_bias = dk_conv_bias;
    result.dv_conv_bias = dv_conv_bias;
    result.dk_conv_initial = dk_conv_initial;
    result.dv_conv_initial = dv_conv_initial;
    result.gate_lower_bound = gate_lower_bound;
    return result;
  }
};

}  // namespace sluice

#endif  // SLUICE_ARGUMENTS_HPP_
