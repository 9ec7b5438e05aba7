// Makes one call of layer_prefill or layer_decode from a config and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "parity/layer_call.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "parity/layer_arrays.hpp"
#include "parity/operator_call.hpp"

namespace sluice::check {
namespace {

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
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

/// What packing SEPARATE has of k, or of v.
struct SeparatePart {
  FreeTensor x, weight, bias, initial, final;
};

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
      qkv_ = tensor(c_.io, take_parts(values.qkv, 2, &SeparatePart::x), Freedom::kInput);
      z_ = tensor(c_.io, values.z, Freedom::kInput);
      b_ = tensor(c_.io, values.b, Freedom::kAnyInput);
      a_ = tensor(c_.io, values.a, c_.key_gates ? Freedom::kInput : Freedom::kAnyInput);
    }
    weight_ =
        tensor(c_.parameters, take_parts(values.weight, 0, &SeparatePart::weight), Freedom::kInput);
    if (c_.has_bias) {
      bias_ = tensor(c_.parameters, take_parts(values.bias, 0, &SeparatePart::bias),
                     Freedom::kAnyInput);
    }
    if (c_.has_rates) {
      A_log_ = tensor(kF32, values.A_log, Freedom::kAnyInput);
      dt_bias_ = tensor(c_.parameters, values.dt_bias,
                        c_.key_gates ? Freedom::kInput : Freedom::kAnyInput);
    }
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
    result.state_initial = state_initial_.values(), result.state = state_final_.values();
    const auto& [k, v] = parts_;
    result.conv_initial = join(conv_initial_.values(), k.initial.values(), v.initial.values());
    result.conv = join(conv_final_.values(), k.final.values(), v.final.values());
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
  /// q's channels along `axis` where the packing is separate, and k's and v's into their `member`;
  /// else all.
  Array take_parts(const Array& values, int axis, FreeTensor SeparatePart::* member) {
    if (c_.packing != SLUICE_PACKING_SEPARATE) return values;
    const int64_t keys = c_.H * c_.K;
    for (int i = 0; i < 2; ++i) {
      const int64_t count = i == 0 ? keys : c_.HV * c_.V;
      const bool is_x = member == &SeparatePart::x, is_bias = member == &SeparatePart::bias;
      parts_[i].*member =
          tensor(is_x ? c_.io : c_.parameters, slice(values, axis, (i + 1) * keys, count),
                 is_bias ? Freedom::kAnyInput : Freedom::kInput);
    }
    return slice(values, axis, 0, keys);
  }
  /// A pool of convolution states of some channels; `layout` of its memory.
  FreeTensor conv_pool(const Array& values, Freedom layout, int64_t first, int64_t count) {
    const Array part = slice(values, 1, first, count);
    FreeTensor pool(c_.conv_state, part.shape, layout, &random_);
    pool.assign(part.values);
    return pool;
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
    const bool separate = c_.packing == SLUICE_PACKING_SEPARATE;
    const int64_t keys = c_.H * c_.K, first[] = {0, keys, 2 * keys, c_.channels()};
    const Array values = make_normal(conv, c_.seed + 21);
    conv_initial_ = conv_pool(values, layout, 0, separate ? keys : c_.channels());
    for (int i = 0; separate && i < 2; ++i) {
      parts_[i].initial = conv_pool(values, layout, first[i + 1], first[i + 2] - first[i + 1]);
    }
    if (c_.in_place) return;
    state_final_ = FreeTensor(c_.state, state, free(Freedom::kPool), &random_);
    std::vector<int64_t> shape = conv;
    for (int i = 0; i < (separate ? 3 : 1); ++i) {
      if (separate) shape[1] = first[i + 1] - first[i];
      FreeTensor& pool = i == 0 ? conv_final_ : parts_[i - 1].final;
      pool = FreeTensor(c_.conv_state, shape, layout, &random_);
    }
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
    const auto& [k, v] = parts_;
    args.k = k.x.view(), args.v = v.x.view();
    args.k_conv_weight = k.weight.view(), args.v_conv_weight = v.weight.view();
    args.k_conv_bias = k.bias.view(), args.v_conv_bias = v.bias.view();
    args.k_conv_initial = k.initial.view(), args.v_conv_initial = v.initial.view();
    if (writes_states()) {
      args.k_conv_final = c_.in_place ? k.initial.view() : k.final.view();
      args.v_conv_final = c_.in_place ? v.initial.view() : v.final.view();
    }
    args.gate_lower_bound = c_.gate_lower_bound;
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
    for (FreeTensor* t : {&qkv_,
                          &z_,
                          &b_,
                          &a_,
                          &weight_,
                          &bias_,
                          &A_log_,
                          &dt_bias_,
                          &norm_weight_,
                          &cu_seqlens_,
                          &read_slots_,
                          &write_slots_,
                          &flags_,
                          &accepted_,
                          &position_,
                          &parts_[0].x,
                          &parts_[1].x,
                          &parts_[0].weight,
                          &parts_[1].weight,
                          &parts_[0].bias,
                          &parts_[1].bias}) {
      if (!t->unchanged()) list += "an input was written; ";
    }
    for (FreeTensor* t :
         {&out_, &core_, &state_initial_, &state_final_, &conv_initial_, &conv_final_,
          &parts_[0].initial, &parts_[1].initial, &parts_[0].final, &parts_[1].final}) {
      if (!t->gaps_unchanged()) list += "memory between elements was written; ";
    }
    const bool keeps_initial = !c_.in_place || !writes_states();
    if (keeps_initial && !(state_initial_.unchanged() && conv_initial_.unchanged())) {
      list += "initial states were written; ";
    }
    for (const FreeTensor* pool :
         {&state_initial_, &state_final_, &conv_initial_, &conv_final_, &parts_[0].initial,
          &parts_[1].initial, &parts_[0].final, &parts_[1].final}) {
      for (int64_t slot = 0; pool->present() && slot < slots_; ++slot) {
        if (contains(used_, slot) || pool->slot_unchanged(slot)) continue;
        list += "slot " + std::to_string(slot) + " was written; ";
      }
    }
    return list;
  }

  std::vector<FreeTensor*> all() {
    return {&qkv_,
            &z_,
            &b_,
            &a_,
            &weight_,
            &bias_,
            &A_log_,
            &dt_bias_,
            &norm_weight_,
            &out_,
            &core_,
            &cu_seqlens_,
            &read_slots_,
            &write_slots_,
            &flags_,
            &accepted_,
            &position_,
            &state_initial_,
            &state_final_,
            &conv_initial_,
            &conv_final_,
            &parts_[0].x,
            &parts_[1].x,
            &parts_[0].weight,
            &parts_[1].weight,
            &parts_[0].bias,
            &parts_[1].bias,
            &parts_[0].initial,
            &parts_[1].initial,
            &parts_[0].final,
            &parts_[1].final};
  }

  const LayerConfig& c_;
  int workspace_fill_;
  Random random_;
  int64_t N_, slots_ = 0;
  FreeTensor qkv_, z_, b_, a_, weight_, bias_, A_log_, dt_bias_, norm_weight_, out_, core_;
  FreeTensor cu_seqlens_, read_slots_, write_slots_, flags_, accepted_, position_;
  FreeTensor state_initial_, state_final_, conv_initial_, conv_final_;
  SeparatePart parts_[2];  ///< of k and v
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
