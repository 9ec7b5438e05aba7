// Lists the steps that `sluice bench decode` and `sluice bench layer` time, with goals, bytes and
// peers.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>

#include "tools/bench/step_report.hpp"

namespace sluice::tools {
namespace {

StepCell cell_of(bool layer, int64_t HV, int64_t B, const std::string& state, double goal_us = 0) {
  StepCell cell;
  cell.layer = layer;
  cell.H = HV >= 16 ? 16 : HV / 2;
  cell.HV = HV, cell.B = B, cell.state = state, cell.goal_us = goal_us;
  return cell;
}

constexpr int kRingSamples = 3000;

struct Goal {
  int64_t B;
  double fp32_us, bf16_us;
};

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

std::vector<StepCell> decode_marks() {
  std::vector<StepCell> cells;
  constexpr Goal kGoals[] = {
      {1, 3.0, 2.9}, {4, 5.5, 4.2}, {16, 19, 11}, {64, 68, 37}, {256, 268, 140}};
  for (const Goal& goal : kGoals) cells.push_back(cell_of(false, 32, goal.B, "fp32", goal.fp32_us));
  for (const Goal& goal : kGoals) cells.push_back(cell_of(false, 32, goal.B, "bf16", goal.bf16_us));
  // Speculation: the verification of four tokens, with the last state and with all of them kept.
  for (const bool per_token : {false, true}) {
    cells.push_back(cell_of(false, 32, 32, "fp32"));
    cells.back().T = 4, cells.back().per_token = per_token;
  }
  cells.push_back(cell_of(false, 32, 32, "fp32"));
  add_rings(false, &cells);
  return cells;
}

/// Kimi-Linear's and its kin's heads: as many key heads as value heads.
std::vector<StepCell> kda_marks() {
  std::vector<StepCell> cells;
  constexpr Goal kGoals[] = {{1, 2.8, 2.5}, {32, 36, 21}, {256, 265, 142}};
  for (const bool wide : {true, false}) {
    for (const Goal& goal : kGoals) {
      cells.push_back(
          cell_of(false, 32, goal.B, wide ? "fp32" : "bf16", wide ? goal.fp32_us : goal.bf16_us));
      cells.back().H = 32, cells.back().key_gates = true;
    }
  }
  cells.push_back(cells[1]);
  cells.back().T = 4, cells.back().goal_us = 0;
  cells.push_back(cells.back());
  cells.back().per_token = true;
  return cells;
}

/// Layers of KDA, whole.
std::vector<StepCell> kda_layer_marks() {
  std::vector<StepCell> cells;
  constexpr Goal kGoals[] = {{1, 0, 4.2}, {32, 0, 23}, {256, 0, 155}};
  for (const bool wide : {false, true}) {
    for (const Goal& goal : kGoals) {
      cells.push_back(
          cell_of(true, 32, goal.B, wide ? "fp32" : "bf16", wide ? goal.fp32_us : goal.bf16_us));
      cells.back().H = 32, cells.back().key_gates = true;
    }
  }
  return cells;
}

std::vector<StepCell> layer_marks() {
  std::vector<StepCell> cells;
  cells.push_back(cell_of(true, 32, 1, "fp32", 5));
  cells.push_back(cell_of(true, 32, 32, "fp32", 37));
  cells.push_back(cell_of(true, 32, 256, "fp32", 280));
  for (const int64_t B : {1, 32, 256}) cells.push_back(cell_of(true, 32, B, "bf16"));
  add_rings(true, &cells);
  return cells;
}

int64_t whole_number(const std::string& text, const std::string& line) {
  size_t used = 0;
  const int64_t value = std::stoll(text, &used);
  if (used != text.size()) throw std::runtime_error("no number: " + text + " in " + line);
  return value;
}

}  // namespace

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

std::vector<StepPeer> parse_step_peers(const std::string& text) {
  std::vector<StepPeer> peers;
  std::istringstream lines(text);
  std::string line;
  for (bool header = true; std::getline(lines, line); header = false) {
    if (header || line.empty()) continue;
    std::istringstream fields(line);
    std::vector<std::string> cells;
    for (std::string cell; std::getline(fields, cell, ',');) cells.push_back(cell);
    if (cells.size() != 7) throw std::runtime_error("7 columns expected: " + line);
    StepPeer peer{cells[0], cells[1], 0, 0, 1, cells[5], 0};
    peer.HV = whole_number(cells[2], line), peer.B = whole_number(cells[3], line);
    peer.T = whole_number(cells[4], line), peer.us = std::stod(cells[6]);
    peers.push_back(peer);
  }
  return peers;
}

std::vector<StepCell> step_grid(const std::string& grid, bool layer) {
  if (grid == "marks") return layer ? layer_marks() : decode_marks();
  if (grid == "kda") return layer ? kda_layer_marks() : kda_marks();
  std::vector<StepCell> cells;
  for (const char* state : {"fp32", "bf16"}) {
    for (const int64_t HV : {8, 16, 32, 48, 64}) {
      for (int64_t B = 1; B <= 512; B *= 2) cells.push_back(cell_of(layer, HV, B, state));
    }
  }
  return cells;
}

}  // namespace sluice::tools
