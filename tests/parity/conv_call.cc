// Makes one call of causal_conv1d from a config and a seed.
// SPDX-License-Identifier: Apache-2.0
#include "parity/conv_call.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "parity/operator_call.hpp"

namespace sluice::check {
namespace {

bool contains(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// A view with two dimensions exchanged.
sluice_tensor exchanged(sluice_tensor view, int a, int b) {
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.stride[a], view.stride[b]);
  return view;
}

class Call {
 public:
  explicit Call(const ConvConfig& config)
      : c_(config), random_(config.seed * 1000003 + 29), N_(config.sequences()) {
    const int64_t batch = c_.packed ? 1 : c_.B;
    const int64_t rows = c_.packed ? c_.offsets().back() + c_.rows_past_end : c_.T;
    L_ = c_.L > 0 ? c_.L : c_.W - 1;
    x_ = tokens(c_.x, batch, rows, Freedom::kAnyInput);
    x_.assign(make_normal({batch, rows, c_.D}, c_.seed + 1).values);
    out_ = tokens(c_.out, batch, rows, Freedom::kAnyOutput);
    weight_ = tensor(c_.weight, make_normal({c_.D, c_.W}, c_.seed + 2), Freedom::kInput);
    if (c_.has_bias) bias_ = tensor(c_.bias, make_normal({c_.D}, c_.seed + 3), Freedom::kAnyInput);
    if (c_.packed) cu_seqlens_ = indices(c_.offsets());
    make_slots();
    make_states();
    for (FreeTensor* t : all()) t->remember();
  }

  ConvResult run(sluice_implementation implementation) {
    sluice_causal_conv1d_args args{};
    args.struct_size = sizeof args;
    args.x = token_view(x_), args.weight = weight_.view(), args.bias = bias_.view();
    args.out = token_view(out_), args.cu_seqlens = cu_seqlens_.view();
    args.state.initial = state_view(initial_);
    if (c_.has_final) args.state.final = state_view(c_.in_place ? initial_ : final_);
    args.state.read_slots = read_slots_.view(), args.state.write_slots = write_slots_.view();
    args.state.has_initial_state = flags_.view();
    args.state.num_accepted = accepted_.view();
    args.state.ring_position = position_.view();
    args.state.pad_below = c_.pad_below;
    args.state.form = c_.form;
    args.activation = c_.activation;
    args.implementation = implementation;

    const CallOutcome call = call_operator(SLUICE_OP_CAUSAL_CONV1D, sluice_causal_conv1d, args);
    ConvResult result;
    result.code = call.code;
    result.message = call.message;
    result.kernel = call.kernel;
    if (result.code != SLUICE_OK) return result;
    result.out = to_array(args.out);
    result.initial = to_array(args.state.initial);
    if (!c_.in_place) result.final = to_array(args.state.final);
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
  FreeTensor indices(const std::vector<int64_t>& values) {
    Array array({static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), array.values.begin());
    return tensor(c_.index, array, Freedom::kAnyOutput);
  }
  FreeTensor tokens(sluice_dtype dtype, int64_t batch, int64_t rows, Freedom wild) {
    if (c_.channel_first) return FreeTensor(dtype, {batch, c_.D, rows}, free(wild), &random_);
    return FreeTensor(dtype, {batch, rows, c_.D}, free(wild), &random_);
  }
  sluice_tensor token_view(const FreeTensor& t) const {
    return c_.channel_first ? exchanged(t.view(), 1, 2) : t.view();
  }
  FreeTensor pool(sluice_dtype dtype) {
    const Freedom freedom = free(Freedom::kAnyOutput);
    if (c_.columns_outside) return FreeTensor(dtype, {slots_, L_, c_.D}, freedom, &random_);
    return FreeTensor(dtype, {slots_, c_.D, L_}, freedom, &random_);
  }
  sluice_tensor state_view(const FreeTensor& t) const {
    return c_.columns_outside && t.present() ? exchanged(t.view(), 1, 2) : t.view();
  }

  void make_slots() {
    slots_ = c_.slots == Slots::kNone ? N_ : c_.pad_below + 2 * N_ + 1;
    std::vector<int64_t> distinct(static_cast<size_t>(2 * N_));
    std::iota(distinct.begin(), distinct.end(), c_.pad_below);
    for (size_t i = distinct.size(); i > 1; --i) {
      const auto j = static_cast<size_t>(pick(&random_, static_cast<int64_t>(i)));
      std::swap(distinct[i - 1], distinct[j]);
    }
    std::vector<int64_t> flags, accepted, positions;
    for (int64_t n = 0; n < N_; ++n) {
      const auto i = static_cast<size_t>(n);
      const int64_t pad = c_.pad_below - 1 - pick(&random_, 3);
      read_.push_back(c_.slots == Slots::kNone ? n : distinct[i]);
      if (contains(c_.padded, n)) read_.back() = pad;
      const bool separate = c_.slots == Slots::kSeparate;
      written_.push_back(separate ? distinct[i + static_cast<size_t>(N_)] : read_.back());
      if (contains(c_.padded_writes, n)) written_.back() = pad;
      flags.push_back(contains(c_.fresh, n) ? 0 : 1);
      accepted.push_back(pick(&random_, std::max<int64_t>(L_ - c_.W + 3, 1)));
      positions.push_back(pick(&random_, 40));
    }
    if (c_.slots != Slots::kNone) read_slots_ = indices(read_);
    if (c_.slots == Slots::kSeparate || c_.slots == Slots::kShared)
      write_slots_ = indices(written_);
    if (c_.num_accepted) accepted_ = indices(accepted);
    if (c_.form == SLUICE_CONV_STATE_RING) position_ = indices(positions);
    if (c_.fresh.empty()) return;
    flags_ = FreeTensor(kBool, {N_}, free(Freedom::kAnyOutput), &random_);
    flags_.assign(std::vector<double>(flags.begin(), flags.end()));
  }

  /// Random states in the slots that are read, NaN in all others.
  void make_states() {
    if (c_.has_initial) {
      initial_ = pool(c_.initial);
      Array states = make_normal({slots_, c_.D * L_}, c_.seed + 4);
      for (int64_t slot = 0; slot < slots_; ++slot) {
        const auto reader = std::find(read_.begin(), read_.end(), slot);
        const bool used = reader != read_.end() && !contains(c_.fresh, reader - read_.begin());
        if (used) continue;
        std::fill_n(&states(slot, 0), c_.D * L_, std::nan(""));
      }
      initial_.assign(states.values);
    }
    if (c_.has_final && !c_.in_place) final_ = pool(c_.final);
  }

  std::string damage() {
    std::string list;
    for (FreeTensor* t : {&x_, &weight_, &bias_, &cu_seqlens_, &read_slots_, &write_slots_, &flags_,
                          &accepted_, &position_}) {
      if (!t->unchanged()) list += "an input was written; ";
    }
    for (FreeTensor* t : {&out_, &initial_, &final_}) {
      if (!t->gaps_unchanged()) list += "memory between elements was written; ";
    }
    if (!c_.in_place && !initial_.unchanged()) list += "initial was written; ";
    const FreeTensor& pool = c_.in_place ? initial_ : final_;
    for (int64_t slot = 0; pool.present() && slot < slots_; ++slot) {
      if (!contains(written_, slot) && !pool.slot_unchanged(slot)) {
        list += "slot " + std::to_string(slot) + " was written; ";
      }
    }
    return list;
  }

  std::vector<FreeTensor*> all() {
    return {&x_,     &weight_,   &bias_,     &cu_seqlens_, &read_slots_, &write_slots_,
            &flags_, &accepted_, &position_, &out_,        &initial_,    &final_};
  }

  const ConvConfig& c_;
  Random random_;
  int64_t N_, L_ = 0, slots_ = 0;
  FreeTensor x_, weight_, bias_, out_, cu_seqlens_, initial_, final_;
  FreeTensor read_slots_, write_slots_, flags_, accepted_, position_;
  std::vector<int64_t> read_, written_;
};

}  // namespace

std::vector<int64_t> ConvConfig::offsets() const {
  if (!packed) return {};
  std::vector<int64_t> result(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), result.begin() + 1);
  return result;
}

ConvResult run_conv(const ConvConfig& config, sluice_implementation implementation) {
  return Call(config).run(implementation);
}

Verdict judge_conv(const ConvConfig& c, const ConvResult& found, const ConvResult& truth) {
  if (found.code != SLUICE_OK) return {false, found.message};
  Verdict verdict{found.damage.empty(), found.damage};
  const auto add = [&](const char* name, const Array& x, const Array& ref, double limit) {
    if (ref.size() == 0) return;
    const Verdict part =
        judge(name, compare_whole(view_of(x), view_of(ref)), {limit, limit, limit});
    verdict.pass = verdict.pass && part.pass;
    verdict.line += part.line + "\n";
  };
  // Both round the same number once; they may differ where float32 and float64 fall on either side
  // of a midpoint.
  const double limit = same_dtype(c.out, kF32) ? 1e-6 : same_dtype(c.out, kF16) ? 3e-4 : 2e-3;
  add("out", found.out, truth.out, limit);
  add("initial", found.initial, truth.initial, 0.0);
  add("final", found.final, truth.final, 0.0);
  return verdict;
}

}  // namespace sluice::check
