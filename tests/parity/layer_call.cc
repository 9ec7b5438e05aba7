// Makes one call of layer_prefill or layer_decode from a config and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "parity/layer_call.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "parity/operator_call.hpp"

namespace sluice::check {
namespace {

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// [B,T,..] parts of a FLAT projection into rows of key heads [K q | K k | rV v | rV z].
Array interleave_qkvz(const LayerConfig& c, const LayerValues& values) {
  const int64_t r = c.HV / c.H, group = 2 * c.K + 2 * r * c.V;
  Array out({c.batch(), c.rows(), c.H * group});
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t t = 0; t < c.rows(); ++t) {
      for (int64_t h = 0; h < c.H; ++h) {
        for (int64_t i = 0; i < c.K; ++i) {
          out(b, t, h * group + i) = values.qkv(b, t, h * c.K + i);
          out(b, t, h * group + c.K + i) = values.qkv(b, t, (c.H + h) * c.K + i);
        }
        for (int64_t j = 0; j < r * c.V; ++j) {
          const int64_t column = h * r * c.V + j;
          out(b, t, h * group + 2 * c.K + j) = values.qkv(b, t, 2 * c.H * c.K + column);
          out(b, t, h * group + 2 * c.K + r * c.V + j) = values.z(b, t, column);
        }
      }
    }
  }
  return out;
}

/// b and a into rows of key heads [r b | r a].
Array interleave_ba(const LayerConfig& c, const LayerValues& values) {
  const int64_t r = c.HV / c.H;
  Array out({c.batch(), c.rows(), 2 * c.HV});
  for (int64_t b = 0; b < c.batch(); ++b) {
    for (int64_t t = 0; t < c.rows(); ++t) {
      for (int64_t h = 0; h < c.HV; ++h) {
        out(b, t, h / r * 2 * r + h % r) = values.b(b, t, h);
        out(b, t, h / r * 2 * r + r + h % r) = values.a(b, t, h);
      }
    }
  }
  return out;
}

/// Fills the rows of padded sequences of a [B,T,..] array with NaN.
void spoil_padded(const LayerConfig& c, Array* array) {
  const std::vector<int64_t> offsets = c.offsets();
  const int64_t width = array->size() / std::max<int64_t>(c.batch() * c.rows(), 1);
  for (const int64_t n : c.padded) {
    const auto i = static_cast<size_t>(n);
    const int64_t first = c.packed ? offsets[i] : n * c.T;
    const int64_t count = c.packed ? offsets[i + 1] - first : c.T;
    std::fill_n(array->values.begin() + first * width, count * width, std::nan(""));
  }
}

class Call {
 public:
  Call(const LayerConfig& config, int workspace_fill)
      : c_(config),
        workspace_fill_(workspace_fill),
        random_(config.seed * 1000003 + 41),
        N_(config.sequences()) {
    LayerValues values = make_layer_values(c_);
    if (c_.nan_pads) {
      for (Array* array : {&values.qkv, &values.z, &values.b, &values.a}) spoil_padded(c_, array);
    }
    if (c_.packing == SLUICE_PACKING_INTERLEAVED) {
      qkv_ = tensor(c_.io, interleave_qkvz(c_, values), Freedom::kInput);
      b_ = tensor(c_.io, interleave_ba(c_, values), Freedom::kAnyInput);
    } else {
      qkv_ = tensor(c_.io, values.qkv, Freedom::kInput);
      z_ = tensor(c_.io, values.z, Freedom::kInput);
      b_ = tensor(c_.io, values.b, Freedom::kAnyInput);
      a_ = tensor(c_.io, values.a, Freedom::kAnyInput);
    }
    weight_ = tensor(c_.parameters, values.weight, Freedom::kInput);
    if (c_.has_bias) bias_ = tensor(c_.parameters, values.bias, Freedom::kAnyInput);
    A_log_ = tensor(kF32, values.A_log, Freedom::kAnyInput);
    dt_bias_ = tensor(c_.parameters, values.dt_bias, Freedom::kAnyInput);
    norm_weight_ = tensor(c_.parameters, values.norm_weight, Freedom::kAnyInput);
    const std::vector<int64_t> heads{c_.batch(), c_.rows(), c_.HV, c_.V};
    out_ = FreeTensor(c_.out, heads, free(Freedom::kOutput), &random_);
    if (c_.has_core) core_ = FreeTensor(c_.core, heads, free(Freedom::kOutput), &random_);
    if (c_.packed) cu_seqlens_ = indices(c_.offsets());
    if (c_.states) make_states();
    for (FreeTensor* t : all()) t->remember();
  }

  LayerResult run(sluice_implementation implementation) {
    const sluice_layer_args args = arguments(implementation);
    const bool decode = c_.op == SLUICE_OP_LAYER_DECODE;
    const CallOutcome call = call_operator(
        c_.op, decode ? sluice_layer_decode : sluice_layer_prefill, args, workspace_fill_);
    LayerResult result;
    result.code = call.code;
    result.message = call.message;
    result.kernel = call.kernel;
    if (result.code != SLUICE_OK) return result;
    result.out = out_.values(), result.core = core_.values();
    result.state_initial = state_initial_.values(), result.conv_initial = conv_initial_.values();
    result.state = state_final_.values(), result.conv = conv_final_.values();
    result.damage = call.damage + damage();
    return result;
  }

 private:
  Freedom free(Freedom wild) const { return c_.wild ? wild : Freedom::kDense; }
  FreeTensor tensor(sluice_dtype dtype, const Array& values, Freedom wild) {
    FreeTensor t(dtype, values.shape, free(wild), &random_);
    t.assign(values.values);
    return t;
  }
  FreeTensor indices(const std::vector<int64_t>& values, int64_t columns = 0) {
    const auto count = static_cast<int64_t>(values.size());
    Array array(columns > 0 ? std::vector<int64_t>{count / columns, columns}
                            : std::vector<int64_t>{count});
    std::copy(values.begin(), values.end(), array.values.begin());
    return tensor(c_.index, array, Freedom::kAnyOutput);
  }

  void make_states() {
    const int64_t columns = std::max<int64_t>(c_.columns, 1), count = N_ * columns;
    const int64_t L = c_.L > 0 ? c_.L : c_.W - 1;
    slots_ = c_.slots == Slots::kNone ? N_ : c_.pad_below + count + 2;
    std::vector<int64_t> accepted, positions, flags;
    for (int64_t i = 0; i < count; ++i) {
      const bool padded = contains(c_.padded, i / columns);
      // Backwards, so that slot n is not sequence n.
      used_.push_back(c_.slots == Slots::kNone ? i : slots_ - 2 - i);
      if (padded) used_.back() = c_.pad_below - 1;
    }
    for (int64_t n = 0; n < N_; ++n) {
      accepted.push_back(pick(&random_, columns + 2));
      positions.push_back(pick(&random_, 50));
      flags.push_back(contains(c_.fresh, n) ? 0 : 1);
    }
    if (c_.slots != Slots::kNone) read_slots_ = indices(used_, c_.columns);
    if (c_.slots == Slots::kShared) write_slots_ = indices(used_, c_.columns);
    if (c_.num_accepted) accepted_ = indices(accepted);
    if (c_.form == SLUICE_CONV_STATE_RING) position_ = indices(positions);
    if (!c_.fresh.empty()) {
      flags_ = FreeTensor(kBool, {N_}, free(Freedom::kAnyOutput), &random_);
      flags_.assign(std::vector<double>(flags.begin(), flags.end()));
    }
    const bool kv = c_.layout == SLUICE_STATE_KV;
    const std::vector<int64_t> state{slots_, c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
    state_initial_ = FreeTensor(c_.state, state, free(Freedom::kPool), &random_);
    state_initial_.assign(make_normal(state, c_.seed + 20).values);
    const std::vector<int64_t> conv{slots_, c_.channels(), L};
    const Freedom layout = c_.conv_outside ? Freedom::kSwapped : free(Freedom::kAnyOutput);
    conv_initial_ = FreeTensor(c_.conv_state, conv, layout, &random_);
    conv_initial_.assign(make_normal(conv, c_.seed + 21).values);
    if (c_.in_place) return;
    state_final_ = FreeTensor(c_.state, state, free(Freedom::kPool), &random_);
    conv_final_ = FreeTensor(c_.conv_state, conv, layout, &random_);
  }

  sluice_layer_args arguments(sluice_implementation implementation) const {
    sluice_layer_args args{};
    args.struct_size = sizeof args;
    args.qkv = qkv_.view(), args.z = z_.view(), args.b = b_.view(), args.a = a_.view();
    args.conv_weight = weight_.view(), args.conv_bias = bias_.view();
    args.A_log = A_log_.view(), args.dt_bias = dt_bias_.view();
    args.norm_weight = norm_weight_.view();
    args.out = out_.view(), args.core_out = core_.view(), args.cu_seqlens = cu_seqlens_.view();
    args.conv_initial = conv_initial_.view(), args.state.initial = state_initial_.view();
    if (writes_states()) {
      args.conv_final = c_.in_place ? conv_initial_.view() : conv_final_.view();
      args.state.final = c_.in_place ? state_initial_.view() : state_final_.view();
    }
    args.state.layout = c_.layout, args.state.pad_below = c_.pad_below;
    args.state.read_slots = read_slots_.view(), args.state.write_slots = write_slots_.view();
    args.state.has_initial_state = flags_.view();
    args.ring_position = position_.view(), args.num_accepted = accepted_.view();
    args.num_k_heads = c_.H, args.num_v_heads = c_.HV;
    args.head_k_dim = c_.K, args.head_v_dim = c_.V;
    args.max_tokens = c_.packed && c_.op == SLUICE_OP_LAYER_DECODE ? 16 : 0;
    args.scale = c_.scale.value_or(0.0), args.scale_mode = c_.scale.has_value() ? 1 : 0;
    args.packing = c_.packing, args.conv_state_form = c_.form;
    args.eigenvalues = c_.eigenvalues, args.head_map = c_.head_map;
    args.l2norm_eps = c_.l2norm_eps, args.norm_eps = c_.norm_eps;
    args.gate_activation = c_.gate_activation, args.rounding = c_.rounding;
    args.state_writes = c_.state_writes, args.implementation = implementation;
    return args;
  }

  bool writes_states() const { return c_.states && c_.state_writes != SLUICE_STATE_WRITE_NONE; }

  std::string damage() {
    std::string list;
    for (FreeTensor* t :
         {&qkv_, &z_, &b_, &a_, &weight_, &bias_, &A_log_, &dt_bias_, &norm_weight_, &cu_seqlens_,
          &read_slots_, &write_slots_, &flags_, &accepted_, &position_}) {
      if (!t->unchanged()) list += "an input was written; ";
    }
    for (FreeTensor* t :
         {&out_, &core_, &state_initial_, &state_final_, &conv_initial_, &conv_final_}) {
      if (!t->gaps_unchanged()) list += "memory between elements was written; ";
    }
    const bool keeps_initial = !c_.in_place || !writes_states();
    if (keeps_initial && !(state_initial_.unchanged() && conv_initial_.unchanged())) {
      list += "initial states were written; ";
    }
    for (const FreeTensor* pool : {&state_initial_, &state_final_, &conv_initial_, &conv_final_}) {
      for (int64_t slot = 0; pool->present() && slot < slots_; ++slot) {
        if (contains(used_, slot) || pool->slot_unchanged(slot)) continue;
        list += "slot " + std::to_string(slot) + " was written; ";
      }
    }
    return list;
  }

  std::vector<FreeTensor*> all() {
    return {&qkv_,         &z_,
            &b_,           &a_,
            &weight_,      &bias_,
            &A_log_,       &dt_bias_,
            &norm_weight_, &out_,
            &core_,        &cu_seqlens_,
            &read_slots_,  &write_slots_,
            &flags_,       &accepted_,
            &position_,    &state_initial_,
            &state_final_, &conv_initial_,
            &conv_final_};
  }

  const LayerConfig& c_;
  int workspace_fill_;
  Random random_;
  int64_t N_, slots_ = 0;
  FreeTensor qkv_, z_, b_, a_, weight_, bias_, A_log_, dt_bias_, norm_weight_, out_, core_;
  FreeTensor cu_seqlens_, read_slots_, write_slots_, flags_, accepted_, position_;
  FreeTensor state_initial_, state_final_, conv_initial_, conv_final_;
  std::vector<int64_t> used_;
};

sluice_dtype coarser(sluice_dtype a, sluice_dtype b) {
  return same_dtype(a, kBF16) || same_dtype(b, kF32) ? a : b;
}

}  // namespace

int64_t LayerConfig::rows() const { return packed ? offsets().back() + rows_past_end : T; }

std::vector<int64_t> LayerConfig::offsets() const {
  if (!packed) return {};
  std::vector<int64_t> result(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), result.begin() + 1);
  return result;
}

LayerValues make_layer_values(const LayerConfig& c) {
  const int64_t B = c.batch(), T = c.rows();
  LayerValues values;
  values.qkv = make_normal({B, T, c.channels()}, c.seed + 1);
  values.z = make_normal({B, T, c.HV * c.V}, c.seed + 2);
  values.b = make_normal({B, T, c.HV}, c.seed + 3);
  values.a = make_normal({B, T, c.HV}, c.seed + 4);
  values.weight = make_normal({c.channels(), c.W}, c.seed + 5);
  values.bias = make_normal({c.channels()}, c.seed + 6);
  values.A_log = make_normal({c.HV}, c.seed + 7);
  values.dt_bias = make_normal({c.HV}, c.seed + 8);
  values.norm_weight = make_normal({c.V}, c.seed + 9);
  // Slow and fast heads side by side; weights near one.
  for (double& value : values.A_log.values) value = 2.0 * value - 3.0;
  for (double& value : values.norm_weight.values) value = 1.0 + 0.2 * value;
  for (double& value : values.weight.values) value *= 0.5;
  return values;
}

LayerResult run_layer(const LayerConfig& config, sluice_implementation implementation,
                      int workspace_fill) {
  return Call(config, workspace_fill).run(implementation);
}

Verdict judge_layer(const LayerConfig& c, const LayerResult& found, const LayerResult& truth) {
  if (found.code != SLUICE_OK) return {false, found.message};
  Verdict verdict{found.damage.empty(), found.damage};
  const auto add = [&](const char* name, const Comparison& comparison, Tolerance tolerance) {
    const Verdict part = judge(name, comparison, tolerance);
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  };
  // Convolved keys are what SiLU makes of them: positive on average.
  constexpr auto kKeys = Conditioning::kCorrelated;
  const bool exact = same_dtype(c.io, kF32);
  const auto limit = [&](sluice_dtype dtype, Quantity quantity) {
    Tolerance tolerance = cap(coarser(c.io, dtype), quantity, kKeys);
    // float32 throughout is held to 1e-5 as the operators are.
    if (exact && same_dtype(dtype, kF32)) tolerance = {1e-5, 2e-5, 2e-5};
    return tolerance;
  };
  const std::vector<int64_t> rows = c.offsets();
  if (c.packed ? rows.back() > 0 : c.B * c.T > 0) {
    // The norm's own rounding of its input counts as a rounding of out.
    add("out", compare_tokens(view_of(found.out), view_of(truth.out), rows),
        limit(c.out, Quantity::kOutput));
    if (c.has_core) {
      const sluice_dtype core =
          c.rounding == SLUICE_NORM_ROUND_ONCE ? c.core : coarser(c.core, c.out);
      add("core_out", compare_tokens(view_of(found.core), view_of(truth.core), rows),
          limit(core, Quantity::kOutput));
    }
  }
  const auto pools = [&](const char* name, const Array& x, const Array& ref, Tolerance tolerance) {
    if (ref.size() > 0) add(name, compare_whole(view_of(x), view_of(ref)), tolerance);
  };
  pools("state_initial", found.state_initial, truth.state_initial,
        limit(c.state, Quantity::kState));
  pools("state", found.state, truth.state, limit(c.state, Quantity::kState));
  pools("conv_initial", found.conv_initial, truth.conv_initial, {});
  pools("conv", found.conv, truth.conv, {});
  for (auto i = static_cast<size_t>(c.packed ? rows.back() * c.HV * c.V : found.out.size());
       i < found.out.values.size(); ++i) {
    if (std::isnan(found.out.values[i])) continue;
    verdict.pass = false;
    verdict.line += "out: a row past the last sequence was written\n";
    break;
  }
  return verdict;
}

}  // namespace sluice::check
