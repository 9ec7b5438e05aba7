// Makes one call of layer_backward from a config and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "parity/layer_gradient_call.hpp"

#include <array>

#include "parity/call_tensors.hpp"
#include "parity/layer_arrays.hpp"

namespace sluice::check {
namespace {

class LayerGradientCall {
 public:
  LayerGradientCall(const LayerGradientConfig& config, sluice_implementation implementation)
      : config_(config), c_(config.layer), tensors_(c_.seed, c_.wild) {
    args_.struct_size = sizeof args_;
    args_.num_k_heads = c_.H, args_.num_v_heads = c_.HV;
    args_.head_k_dim = c_.K, args_.head_v_dim = c_.V;
    args_.scale = c_.scale.value_or(0.0), args_.scale_mode = c_.scale.has_value() ? 1 : 0;
    args_.packing = c_.packing, args_.eigenvalues = c_.eigenvalues, args_.head_map = c_.head_map;
    args_.gate_activation = c_.gate_activation, args_.rounding = c_.rounding;
    args_.state_layout = c_.layout, args_.implementation = implementation;
    args_.gate_lower_bound = c_.gate_lower_bound;
    give_inputs();
    give_states();
    give_outputs();
    tensors_.remember();
  }

  GradientResult run(int workspace_fill) {
    GradientResult result;
    result.call =
        call_operator(SLUICE_OP_LAYER_BACKWARD, sluice_layer_backward, args_, workspace_fill);
    for (const auto& [name, view] : outputs_) {
      if (view->data != nullptr) result.gradients.emplace_back(name, to_array(*view));
    }
    result.intact = tensors_.intact() && result.call.damage.empty();
    return result;
  }

 private:
  Freedom key_wise(Freedom yes, Freedom no) const { return c_.key_gates ? yes : no; }

  struct Kept {
    sluice_dtype dtype;
    Freedom freedom;
    int axis;  ///< of channels
  };
  /// q's channels, k's and v's to three places where the packing is separate; else all to the first.
  void give_parts(const Kept& kept, const Array& values,
                  const std::array<sluice_tensor*, 3>& places) {
    if (c_.packing != SLUICE_PACKING_SEPARATE) {
      *places[0] = tensors_.input(kept.dtype, values, kept.freedom);
      return;
    }
    const int64_t keys = c_.H * c_.K, counts[3] = {keys, keys, c_.HV * c_.V};
    for (size_t i = 0; i < 3; ++i) {
      const Array part = slice(values, kept.axis, static_cast<int64_t>(i) * keys, counts[i]);
      *places[i] = tensors_.input(kept.dtype, part, kept.freedom);
    }
  }

  void give_inputs() {
    const LayerValues values = make_layer_values(c_);
    if (c_.packing == SLUICE_PACKING_INTERLEAVED) {
      args_.qkv = tensors_.input(c_.io, interleave_qkvz(c_, values), Freedom::kInput);
      args_.b = tensors_.input(c_.io, interleave_ba(c_, values), Freedom::kAnyInput);
    } else {
      give_parts({c_.io, Freedom::kInput, 2}, values.qkv, {&args_.qkv, &args_.k, &args_.v});
      args_.z = tensors_.input(c_.io, values.z, Freedom::kInput);
      args_.b = tensors_.input(c_.io, values.b, Freedom::kAnyInput);
      args_.a = tensors_.input(c_.io, values.a, key_wise(Freedom::kInput, Freedom::kAnyInput));
    }
    give_parts({c_.parameters, Freedom::kInput, 0}, values.weight,
               {&args_.conv_weight, &args_.k_conv_weight, &args_.v_conv_weight});
    if (c_.has_bias) {
      give_parts({c_.parameters, Freedom::kAnyInput, 0}, values.bias,
                 {&args_.conv_bias, &args_.k_conv_bias, &args_.v_conv_bias});
    }
    if (c_.has_rates) {
      args_.A_log = tensors_.input(kF32, values.A_log, Freedom::kAnyInput);
      args_.dt_bias = tensors_.input(c_.parameters, values.dt_bias,
                                     key_wise(Freedom::kInput, Freedom::kAnyInput));
    }
    args_.norm_weight = tensors_.input(c_.parameters, values.norm_weight, Freedom::kAnyInput);
    const std::vector<int64_t> heads{c_.batch(), c_.rows(), c_.HV, c_.V};
    args_.d_out = tensors_.input(c_.out, make_normal(heads, c_.seed + 30), Freedom::kInput);
    if (config_.gives_core) {
      LayerConfig forward = c_;
      forward.states = false, forward.has_core = true, forward.wild = false;
      args_.core_out =
          tensors_.input(c_.core, run_layer(forward, SLUICE_IMPL_REFERENCE).core, Freedom::kInput);
    }
    if (!c_.packed) return;
    const std::vector<int64_t> offsets = c_.offsets();
    Array array({static_cast<int64_t>(offsets.size())});
    std::copy(offsets.begin(), offsets.end(), array.values.begin());
    args_.cu_seqlens = tensors_.input(c_.index, array, Freedom::kAnyOutput);
  }

  void give_states() {
    if (!c_.states) return;
    args_.initial = tensors_.input(c_.state, make_normal(state(), c_.seed + 20), Freedom::kPool);
    args_.d_final = tensors_.input(c_.state, make_normal(state(), c_.seed + 31), Freedom::kPool);
    const Kept columns_kept{c_.conv_state, Freedom::kAnyInput, 1};
    give_parts(columns_kept, make_normal(columns(c_.channels()), c_.seed + 21),
               {&args_.conv_initial, &args_.k_conv_initial, &args_.v_conv_initial});
    give_parts(columns_kept, make_normal(columns(c_.channels()), c_.seed + 32),
               {&args_.d_conv_final, &args_.d_k_conv_final, &args_.d_v_conv_final});
  }
  std::vector<int64_t> state() const {
    const bool kv = c_.layout == SLUICE_STATE_KV;
    return {c_.sequences(), c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
  }
  std::vector<int64_t> columns(int64_t channels) const {
    return {c_.sequences(), channels, c_.L > 0 ? c_.L : c_.W - 1};
  }

  void output(const char* name, sluice_tensor* to, const std::vector<int64_t>& shape,
              Freedom freedom) {
    const unsigned place = place_++;
    if ((config_.wanted >> place & 1) == 0 || shape.empty()) return;
    *to = tensors_.output(config_.gradients, shape, freedom);
    outputs_.emplace_back(name, to);
  }
  /// The shape of an input; empty where that is absent.
  static std::vector<int64_t> like(const sluice_tensor& t) {
    return t.data == nullptr ? std::vector<int64_t>()
                             : std::vector<int64_t>(t.shape, t.shape + t.rank);
  }
  void give_outputs() {
    constexpr Freedom kAny = Freedom::kAnyOutput;
    output("dqkv", &args_.dqkv, like(args_.qkv), Freedom::kOutput);
    output("dz", &args_.dz, like(args_.z), Freedom::kOutput);
    output("db", &args_.db, like(args_.b), kAny);
    output("da", &args_.da, like(args_.a), key_wise(Freedom::kOutput, kAny));
    output("dconv_weight", &args_.dconv_weight, like(args_.conv_weight), kAny);
    output("dconv_bias", &args_.dconv_bias, like(args_.conv_bias), kAny);
    output("dA_log", &args_.dA_log, like(args_.A_log), kAny);
    output("ddt_bias", &args_.ddt_bias, like(args_.dt_bias), key_wise(Freedom::kOutput, kAny));
    output("dnorm_weight", &args_.dnorm_weight, like(args_.norm_weight), kAny);
    output("dinitial", &args_.dinitial, state(), Freedom::kPool);
    const bool separate = c_.packing == SLUICE_PACKING_SEPARATE;
    const int64_t keys = c_.H * c_.K;
    output("dconv_initial", &args_.dconv_initial, columns(separate ? keys : c_.channels()), kAny);
    if (!separate) return;
    output("dk", &args_.dk, like(args_.k), Freedom::kOutput);
    output("dv", &args_.dv, like(args_.v), Freedom::kOutput);
    output("dk_conv_weight", &args_.dk_conv_weight, like(args_.k_conv_weight), kAny);
    output("dv_conv_weight", &args_.dv_conv_weight, like(args_.v_conv_weight), kAny);
    output("dk_conv_bias", &args_.dk_conv_bias, like(args_.k_conv_bias), kAny);
    output("dv_conv_bias", &args_.dv_conv_bias, like(args_.v_conv_bias), kAny);
    output("dk_conv_initial", &args_.dk_conv_initial, columns(keys), kAny);
    output("dv_conv_initial", &args_.dv_conv_initial, columns(c_.HV * c_.V), kAny);
  }

  const LayerGradientConfig& config_;
  const LayerConfig& c_;
  CallTensors tensors_;
  sluice_layer_backward_args args_{};
  unsigned place_ = 0;
  std::vector<std::pair<std::string, const sluice_tensor*>> outputs_;
};

}  // namespace

GradientResult run_gradients(const LayerGradientConfig& config,
                             sluice_implementation implementation, int workspace_fill) {
  return LayerGradientCall(config, implementation).run(workspace_fill);
}

}  // namespace sluice::check
