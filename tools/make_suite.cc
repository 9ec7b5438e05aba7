// Lists the cases of each suite.
// SPDX-License-Identifier: Apache-2.0
#include "tools/case_settings.hpp"

#include <fmt/core.h>

#include <span>
#include <utility>

#include "check/array.hpp"

namespace sluice::tools {
namespace {

/// What a row of the ladder is made of: the delta rule and simple GLA, in one launch and in stages.
struct Family {
  const char *name, *op, *part, *rule;
  bool key_gates = false;
};
constexpr Family kFamilies[] = {{"prefill", "prefill", "all", "gated_delta"},
                                {"simple_gla", "prefill", "all", "linear_attention"},
                                {"stages", "stages", "all", "gated_delta"},
                                {"simple_gla_stages", "stages", "all", "linear_attention"},
                                {"simple_gla_sums", "stages", "one-call", "linear_attention"}};
/// Key-wise gates with either rule.
constexpr Family kKeyFamilies[] = {{"kda", "prefill", "all", "gated_delta", true},
                                   {"gla", "prefill", "all", "linear_attention", true},
                                   {"kda_stages", "stages", "all", "gated_delta", true},
                                   {"gla_stages", "stages", "all", "linear_attention", true}};
constexpr Family kGradients[] = {{"gradients", "gradients", "all", "gated_delta"},
                                 {"simple_gla_gradients", "gradients", "all", "linear_attention"}};
constexpr Family kKeySteps[] = {{"kda_decode", "decode", "all", "gated_delta", true},
                                {"gla_decode", "decode", "all", "linear_attention", true}};

class Suite {
 public:
  explicit Suite(bool smoke) : smoke_(smoke) {}

  std::vector<SuiteRow> rows() && {
    lengths();
    packs();
    profiles();
    sizes();
    fused_pairs();
    single_stages();
    other_operators();
    key_gates();
    gradients();
    key_layers();
    return std::move(rows_);
  }

 private:
  template <class Change>
  void families(const std::string& what, Change change) {
    families(kFamilies, what, change);
  }
  template <class Change>
  void families(std::span<const Family> list, const std::string& what, Change change) {
    for (const Family& family : list) {
      SuiteRow row;
      row.name = fmt::format("{}.{}", family.name, what);
      row.op = family.op, row.part = family.part, row.rule = family.rule;
      row.key_gates = family.key_gates;
      change(&row);
      add(row);
    }
  }
  void add(SuiteRow row) {
    row.seed = rows_.size() + 1;
    // A small cut: the same kinds of cases, short and narrow.
    if (smoke_) {
      if (row.T > 150) return;
      row.K = row.K / 4 + 1, row.V = row.V / 4 + 1;
    }
    rows_.push_back(std::move(row));
  }

  void lengths() {
    for (const int64_t T : {1, 63, 64, 65, 127, 128, 129, 255, 447, 1024, 1920, 4096}) {
      families(fmt::format("T{}", T), [&](SuiteRow* row) {
        row->T = T, row->chunk = T % 2 == 0 ? 64 : 128;
        // Long rows show lost states where decay is slow.
        row->gates = T > 1000 ? "slow" : "flashqla";
      });
    }
  }

  void packs() {
    const std::vector<std::vector<int64_t>> kPacks = {
        {256, 256},
        {128, 128, 128},
        {150, 300},
        {129, 255},
        {1, 17, 128, 129, 255},
        {0, 5, 0, 64, 0},
        {128, 256, 384, 512, 768},
        {1, 63, 64, 65, 127, 128, 129, 447, 512, 640, 1920}};
    for (size_t i = 0; i < kPacks.size(); ++i) {
      families(fmt::format("pack{}", i), [&](SuiteRow* row) {
        row->lengths = kPacks[i];
        row->T = 0;
        for (const int64_t length : kPacks[i]) row->T += length;
        row->chunk = i % 2 == 0 ? 64 : 128;
      });
    }
  }

  /// Every kind of gates, and some of keys: make(name, change) adds rows that `change` changes.
  template <class Make>
  static void gates_and_keys(std::initializer_list<const char*> kinds_of_keys, Make make) {
    for (const char* gates :
         {"none", "zero", "slow", "strong", "model", "resets", "minus-infinity", "half-zeros"}) {
      make(fmt::format("gates_{}", gates), [&](SuiteRow* row) { row->gates = gates; });
    }
    for (const char* keys : kinds_of_keys) {
      make(fmt::format("keys_{}", keys), [&](SuiteRow* row) {
        row->keys = keys, row->gates = "slow";
        row->tolerance = 1e-4;  // correlated keys amplify float32's own rounding
      });
    }
  }

  void profiles() {
    gates_and_keys({"random", "cos75", "cos90"}, [&](const std::string& what, auto change) {
      families(what, [&](SuiteRow* row) {
        row->T = 150;
        change(row);
      });
    });
  }

  void sizes() {
    const struct {
      int64_t H, HV, K, V;
    } kSizes[] = {{2, 6, 128, 128}, {1, 1, 60, 100}, {1, 4, 64, 128}, {3, 3, 100, 60}};
    for (const auto& s : kSizes) {
      families(fmt::format("H{}_HV{}_K{}_V{}", s.H, s.HV, s.K, s.V), [&](SuiteRow* row) {
        row->H = s.H, row->HV = s.HV, row->K = s.K, row->V = s.V, row->T = 100, row->B = 2;
      });
    }
    families("head_first_vk",
             [](SuiteRow* row) { row->head_first = row->vk = true, row->V = 48, row->T = 100; });
    for (const int64_t chunk : {16, 32, 64, 128}) {
      SuiteRow row;
      row.name = fmt::format("stages.chunk{}", chunk), row.op = "stages";
      row.chunk = chunk, row.T = 150;
      add(row);
    }
  }

  void fused_pairs() {
    for (const int64_t chunk : {16, 32, 64, 128}) {
      SuiteRow row;
      row.name = fmt::format("pairs.chunk{}", chunk), row.op = "stages", row.part = "pairs";
      row.chunk = chunk, row.T = 150, row.gates = chunk == 32 ? "minus-infinity" : "flashqla";
      row.head_first = chunk == 16;
      if (chunk == 128) row.lengths = {1, 17, 0, 132};
      add(row);
    }
  }

  void single_stages() {
    for (const int64_t n : {16, 32, 64, 128}) {
      SuiteRow row;
      row.name = fmt::format("solve_upper.{}", n), row.op = "stages", row.part = "upper";
      row.chunk = n, row.T = 150;
      add(row);
    }
    SuiteRow reverse;
    reverse.name = "cumsum_reverse", reverse.op = "stages", reverse.part = "reverse";
    reverse.gates = "strong", reverse.T = 150;
    add(reverse);
  }

  void other_operators() {
    for (const char* gates : {"slow", "strong"}) {
      SuiteRow decode;
      decode.name = fmt::format("decode.{}", gates), decode.op = "decode", decode.gates = gates;
      decode.T = decode.steps = 24, decode.B = 3;
      add(decode);
    }
    for (const char* op : {"layer", "conv1d", "gated_norm"}) {
      SuiteRow row;
      row.name = op, row.op = op, row.B = 2, row.T = 100;
      if (row.op == "layer") {
        // WHY 8: limits of 16 bits are means over rows, and a step of a layer is one row of each.
        row.steps = 5, row.B = 8;
      }
      add(row);
    }
  }

  void key_gates() {
    for (const int64_t T : {65, 300}) {
      families(kKeyFamilies, fmt::format("T{}", T),
               [&](SuiteRow* row) { row->T = T, row->gates = T == 300 ? "slow" : "flashqla"; });
    }
    families(kKeyFamilies, "pack",
             [](SuiteRow* row) { row->lengths = {1, 17, 0, 128, 129}, row->T = 275; });
    for (const char* gates :
         {"zero", "strong", "resets", "minus-infinity", "model", "bounded", "spread",
          "single-resets", "one-strong", "alternating", "even-slow"}) {
      families(kKeyFamilies, fmt::format("gates_{}", gates),
               [&](SuiteRow* row) { row->gates = gates, row->T = 150; });
    }
    for (const char* space : {"raw", "raw_bounded"}) {
      const auto raw = [&](SuiteRow* row) {
        row->gates = "bounded", row->gate_space = space, row->HV = 4, row->H = 2, row->K = 48;
      };
      constexpr std::span<const Family> kPrefills(kKeyFamilies, 2);
      families(kPrefills, space, [&](SuiteRow* row) { raw(row), row->T = 140; });
      families(kKeySteps, space, [&](SuiteRow* row) { raw(row), row->T = row->steps = 40; });
    }
    families(kKeyFamilies, "H2_HV6_K128_V128",
             [](SuiteRow* row) { row->H = 2, row->HV = 6, row->K = row->V = 128, row->T = 100; });
    families(kKeyFamilies, "H1_HV4_K60_V100", [](SuiteRow* row) {
      row->HV = 4, row->K = 60, row->V = 100, row->T = 100, row->B = 2, row->chunk = 32;
    });
    families(kKeyFamilies, "head_first_vk", [](SuiteRow* row) {
      row->head_first = row->vk = true, row->V = 48, row->T = 100, row->chunk = 128;
    });
    for (const char* gates : {"slow", "strong", "minus-infinity"}) {
      families(kKeySteps, gates,
               [&](SuiteRow* row) { row->gates = gates, row->T = row->steps = 40, row->B = 3; });
    }
    constexpr Family kReverse[] = {{"gla_cumsum", "stages", "reverse", "linear_attention", true}};
    families(kReverse, "reverse", [](SuiteRow* row) { row->gates = "strong", row->T = 150; });
  }

  /// Layers with key-wise gates: prefills and steps.
  void key_layers() {
    const auto add_layer = [&](const std::string& what, auto change) {
      SuiteRow row;
      row.name = fmt::format("kda_layer.{}", what), row.op = "layer", row.key_gates = true;
      // WHY 16: as in other_operators().
      row.B = 16, row.T = 70, row.steps = 4, row.HV = row.H = 2;
      change(&row);
      add(row);
    };
    for (const char* gates : {"model", "zero", "slow", "strong", "spread", "single-resets",
                              "minus-infinity", "alternating", "even-slow", "one-strong"}) {
      add_layer(fmt::format("gates_{}", gates), [&](SuiteRow* row) { row->gates = gates; });
    }
    add_layer("bounded",
              [](SuiteRow* row) { row->gates = "bounded", row->lower_bound = -5, row->HV = 4; });
    for (const char* keys : {"cos75", "cos90"}) {
      add_layer(fmt::format("keys_{}", keys), [&](SuiteRow* row) {
        row->keys = keys, row->gates = "slow", row->tolerance = 1e-4;  // as in gates_and_keys()
      });
    }
  }

  void gradients() {
    const auto both = [&](const std::string& what, auto change) {
      families(kGradients, what, [&](SuiteRow* row) {
        row->T = 150, row->l2norm = true;
        change(row);
      });
    };
    for (const int64_t T : {1, 63, 64, 65, 129, 300}) {
      both(fmt::format("T{}", T), [&](SuiteRow* row) { row->T = T; });
    }
    both("pack", [](SuiteRow* row) { row->lengths = {1, 17, 0, 128, 129}, row->T = 275; });
    gates_and_keys({"cos75", "cos90"}, [&](const std::string& what, auto change) {
      both(what, [&](SuiteRow* row) {
        row->l2norm = false;
        change(row);
        // A chunk's sum of these is up to 1280: as a float32 it errs by 2^-24 of that, and so does
        // a decay.
        const bool large = row->gates == "resets" || row->gates == "minus-infinity";
        if (large) row->tolerance = 1e-4;
      });
    });
    for (const char* space : {"linear", "raw"}) {
      both(fmt::format("{}_gates", space), [&](SuiteRow* row) { row->gate_space = space; });
    }
    both("raw_pack", [](SuiteRow* row) {
      row->gate_space = "raw", row->gates = "strong", row->lengths = {63, 0, 5, 70}, row->T = 138;
    });
    gradient_sizes(both);
    for (const auto& [name, dtype] : {std::pair{"bf16", check::kBF16}, {"f16", check::kF16}}) {
      both(name, [&](SuiteRow* row) { row->dtype = dtype; });
    }
  }

  template <class Both>
  void gradient_sizes(Both both) {
    const struct {
      int64_t H, HV, K, V;
    } kSizes[] = {{2, 6, 128, 128}, {1, 4, 60, 100}, {3, 3, 100, 60}};
    for (const auto& s : kSizes) {
      both(fmt::format("H{}_HV{}_K{}_V{}", s.H, s.HV, s.K, s.V), [&](SuiteRow* row) {
        row->H = s.H, row->HV = s.HV, row->K = s.K, row->V = s.V, row->T = 100;
        row->B = s.H == 1 ? 2 : 1;
      });
    }
    both("K128_V128_pack", [](SuiteRow* row) {
      row->K = row->V = 128, row->gates = "strong", row->lengths = {1, 17, 0, 64, 65}, row->T = 147;
    });
    both("K128_V128_slow", [](SuiteRow* row) { row->K = row->V = 128, row->gates = "slow"; });
    both("head_first_vk",
         [](SuiteRow* row) { row->head_first = row->vk = true, row->V = 48, row->T = 100; });
    // Nothing that may be left out.
    both("plain", [](SuiteRow* row) {
      row->initial = row->final_gradient = "none", row->l2norm = false, row->B = 2, row->T = 100;
    });
  }

  bool smoke_;
  std::vector<SuiteRow> rows_;
};

/// Operators with the heads of models, for which GPUs have kernels of their own.
std::vector<SuiteRow> model_rows() {
  std::vector<SuiteRow> rows;
  for (const char* op : {"prefill", "decode", "layer", "gradients"}) {
    SuiteRow row;
    row.name = std::string("model_") + op, row.op = op, row.K = row.V = 128;
    row.T = 200, row.l2norm = true;
    if (row.op == "decode") row.T = row.steps = 8, row.B = 3;
    if (row.op == "layer") row.T = 100, row.steps = 5, row.B = 8;  // as in other_operators()
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::vector<SuiteRow> suite_rows(const std::string& suite) {
  if (suite.empty()) return {};
  std::vector<SuiteRow> rows = Suite(suite != "conformance").rows();
  if (suite != "self-check") return rows;
  for (SuiteRow& row : model_rows()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace sluice::tools
