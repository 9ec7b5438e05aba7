// Lists the steps that `sluice bench decode` and `sluice bench layer` time, with goals, bytes and
// peers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>

#include "tools/bench/step_report.hpp"

namespace sluice::tools {
namespace {

constexpr int kRingSamples = 3000;

StepCell cell_of(bool layer, int64_t HV, int64_t B, const std::string& state, double goal_us = 0) {
  StepCell cell;
  cell.layer = layer;
  cell.H = HV >= 16 ? 16 : HV / 2;
  cell.HV = HV, cell.B = B, cell.state = state, cell.goal_us = goal_us;
  return cell;
}

/// A batch of a grid with goals for states in float32 and in bfloat16; 0: none is set.
struct Goal {
  int64_t B;
  double fp32_us, bf16_us;
};

/// All of `goals` with one type of states, then with the other.
template <size_t kCount>
std::vector<StepCell> with_goals(bool layer, bool key_gates, const Goal (&goals)[kCount],
                                 bool wide_first = true) {
  std::vector<StepCell> cells;
  for (const bool wide : {wide_first, !wide_first}) {
    for (const Goal& goal : goals) {
      cells.push_back(
          cell_of(layer, 32, goal.B, wide ? "fp32" : "bf16", wide ? goal.fp32_us : goal.bf16_us));
      cells.back().key_gates = key_gates;
      // Kimi-Linear's and its kin's heads: as many key heads as value heads.
      if (key_gates) cells.back().H = 32;
    }
  }
  return cells;
}

/// The replay ring: plain decoding, and the verification of four tokens.
void add_rings(bool layer, std::vector<StepCell>* cells) {
  struct Ring {
    int64_t B, T;
    const char *state, *entry;
  };
  constexpr Ring kRings[] = {{1, 1, "fp32", "fp32"},   {32, 1, "fp32", "fp32"},
                             {256, 1, "fp32", "fp32"}, {256, 1, "bf16", "bf16"},
                             {32, 4, "fp32", "fp32"},  {32, 4, "fp32", "bf16"}};
  for (const Ring& ring : kRings) {
    cells->push_back(cell_of(layer, 32, ring.B, ring.state));
    cells->back().T = ring.T, cells->back().ring = 16, cells->back().entry = ring.entry;
  }
}

/// Speculation: the verification of four tokens, with the last state and with all of them kept.
void add_drafts(StepCell cell, std::vector<StepCell>* cells) {
  cell.T = 4, cell.goal_us = 0;
  for (const bool per_token : {false, true}) {
    cell.per_token = per_token;
    cells->push_back(cell);
  }
}

std::vector<StepCell> step_marks(bool layer) {
  constexpr Goal kSteps[] = {
      {1, 3.0, 2.9}, {4, 5.5, 4.2}, {16, 19, 11}, {64, 68, 37}, {256, 268, 140}};
  constexpr Goal kLayers[] = {{1, 5, 0}, {32, 37, 0}, {256, 280, 0}};
  std::vector<StepCell> cells =
      layer ? with_goals(true, false, kLayers) : with_goals(false, false, kSteps);
  if (!layer) {
    add_drafts(cell_of(false, 32, 32, "fp32"), &cells);
    cells.push_back(cell_of(false, 32, 32, "fp32"));
  }
  add_rings(layer, &cells);
  return cells;
}

std::vector<StepCell> kda_marks(bool layer) {
  constexpr Goal kSteps[] = {{1, 2.8, 2.5}, {32, 36, 21}, {256, 265, 142}};
  constexpr Goal kLayers[] = {{1, 0, 4.2}, {32, 0, 23}, {256, 0, 155}};
  if (layer) return with_goals(true, true, kLayers, false);
  std::vector<StepCell> cells = with_goals(false, true, kSteps);
  const StepCell draft = cells[1];
  add_drafts(draft, &cells);
  return cells;
}

template <class Value>
std::vector<Value> given_or(const std::vector<Value>& list, Value standard) {
  return list.empty() ? std::vector<Value>{standard} : list;
}

/// Those of the grid, or --HV x --B x --T x --state.
std::vector<StepCell> cells_of_any_layout(const StepSettings& s) {
  if (s.HV.empty() && s.B.empty() && s.T.empty() && s.states.empty()) {
    return step_grid(s.grid, s.cell.layer);
  }
  std::vector<StepCell> cells;
  for (const std::string& state : given_or(s.states, std::string("fp32"))) {
    for (const int64_t HV : given_or(s.HV, int64_t{32})) {
      for (const int64_t B : given_or(s.B, int64_t{1})) {
        for (const int64_t T : given_or(s.T, int64_t{1})) {
          StepCell& cell = cells.emplace_back(s.cell);
          cell.HV = HV, cell.B = B, cell.T = T, cell.state = state;
          if (cell.H == 0) cell.H = std::max<int64_t>(HV / 2, 1);
        }
      }
    }
  }
  return cells;
}

}  // namespace

std::vector<StepCell> step_cells(const StepSettings& s) {
  std::vector<StepCell> cells;
  for (const std::string& layout : s.layouts) {
    for (StepCell cell : cells_of_any_layout(s)) {
      cell.vk = layout == "vk", cell.packed = s.cell.packed;
      cells.push_back(cell);
    }
  }
  return cells;
}

std::vector<StepPeer> step_peers_of(const StepCell& cell) {
  std::vector<StepPeer> found;
  for (const StepPeer& peer : parse_step_peers(embedded_step_peers())) {
    const char* const op =
        cell.key_gates ? (cell.layer ? "kda layer" : "kda") : (cell.layer ? "layer" : "decode");
    if (peer.op == op && peer.HV == cell.HV && peer.B == cell.B && peer.T == cell.T &&
        peer.state == cell.state && !cell.per_token && cell.ring == 0) {
      found.push_back(peer);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const StepPeer& a, const StepPeer& b) { return a.us < b.us; });
  return found;
}

bool ring_folds(const StepCell& cell, int64_t live) { return live > cell.ring - 2 * cell.T; }

std::vector<int64_t> ring_samples(const StepCell& cell, int64_t count) {
  std::vector<int64_t> samples;
  std::mt19937 random(5);
  for (int64_t live = 0; static_cast<int64_t>(samples.size()) < count;) {
    samples.push_back(live);
    live = (ring_folds(cell, live) ? 0 : live) + 1 + static_cast<int64_t>(random()) % cell.T;
  }
  return samples;
}

double step_bytes(const StepCell& c) {
  const auto tokens = static_cast<double>(c.B * c.T);
  const auto states = static_cast<double>(c.B * c.state_bytes());
  double written = c.per_token ? static_cast<double>(c.T) : 1.0, entries = 0;
  if (c.ring > 0) {
    const std::vector<int64_t> samples = ring_samples(c, kRingSamples);
    const auto mean = [&](auto value) {
      const auto add = [&](double sum, int64_t live) {
        return sum + static_cast<double>(value(live));
      };
      return std::accumulate(samples.begin(), samples.end(), 0.0, add) / kRingSamples;
    };
    const int64_t width = c.entry == "fp32" ? 4 : 2;
    written = mean([&](int64_t live) { return ring_folds(c, live) ? 1 : 0; });
    entries = (mean([](int64_t live) { return live; }) + static_cast<double>(c.T)) *
              static_cast<double>(width * (c.H * c.K + c.HV * c.V) + 4 * c.HV);
  }
  const auto channels = static_cast<double>(c.conv_channels());
  const auto values = static_cast<double>(c.HV * c.V);
  const auto gates = static_cast<double>(c.key_gates ? c.HV * (c.K + 1) : 2 * c.HV);
  double bytes = states * (1 + written) + tokens * 2.0 * gates +
                 tokens * 2.0 * (channels + values) + static_cast<double>(c.B) * entries;
  if (c.layer) {
    const auto columns = static_cast<double>(kConvWidth - 1 + c.conv_columns());
    bytes += tokens * 2.0 * values + static_cast<double>(c.B) * 2.0 * columns * channels +
             10.0 * channels;
  }
  return bytes;
}

std::vector<StepPeer> parse_step_peers(const PeerTable& table) {
  std::vector<StepPeer> peers;
  read_table(table, "peer,op,HV,B,T,state,us", [&](const std::vector<std::string>& fields) {
    StepPeer& peer = peers.emplace_back(
        StepPeer{fields[0], fields[1], 0, 0, 1, fields[5], std::stod(fields[6])});
    const std::pair<int64_t*, std::string> counts[] = {
        {&peer.HV, fields[2]}, {&peer.B, fields[3]}, {&peer.T, fields[4]}};
    for (const auto& [value, text] : counts) {
      size_t used = 0;
      *value = std::stoll(text, &used);
      if (used != text.size()) return "no number: " + text;
    }
    return std::string();
  });
  return peers;
}

std::vector<StepCell> step_grid(const std::string& grid, bool layer) {
  if (grid == "marks") return step_marks(layer);
  if (grid == "kda") return kda_marks(layer);
  std::vector<StepCell> cells;
  for (const char* state : {"fp32", "bf16"}) {
    for (const int64_t HV : {8, 16, 32, 48, 64}) {
      for (int64_t B = 1; B <= 512; B *= 2) cells.push_back(cell_of(layer, HV, B, state));
    }
  }
  return cells;
}

}  // namespace sluice::tools
