// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/step_report.hpp"

#include <fmt/core.h>

#include <cmath>

#include "tools/table.hpp"

namespace sluice::tools {
namespace {

// "-" for what is not known.
std::string text_of(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

nlohmann::json number_of(double value) {
  return std::isnan(value) ? nlohmann::json() : nlohmann::json(value);
}

std::string writes_of(const StepCell& cell) { return cell.per_token ? "per token" : "last"; }

nlohmann::json to_json(const StepRow& row) {
  const StepCell& c = row.cell;
  nlohmann::json out = {{"H", c.H},
                        {"HV", c.HV},
                        {"K", c.K},
                        {"V", c.V},
                        {"B", c.B},
                        {"T", c.T},
                        {"state", c.state},
                        {"writes", writes_of(c)},
                        {"kernel", row.kernel},
                        {"failure", row.failure},
                        {"us", number_of(row.us)},
                        {"us_min", number_of(row.us_min)},
                        {"us_p90", number_of(row.us_p90)},
                        {"host_us", number_of(row.host_us)},
                        {"launches", row.launches},
                        {"bytes", row.bytes},
                        {"gb_per_s", number_of(row.gb_per_s())},
                        {"floor_us", number_of(row.floor_us)},
                        {"share_of_copy", number_of(row.share())},
                        {"goal_us", c.goal_us > 0 ? nlohmann::json(c.goal_us) : nlohmann::json()},
                        {"ratio_to_best_peer", number_of(row.ratio())},
                        {"peers", nlohmann::json::array()}};
  for (const StepPeer& peer : row.peers) {
    out["peers"].push_back({{"peer", peer.peer}, {"us", peer.us}});
  }
  return out;
}

}  // namespace

nlohmann::json to_json(const StepReport& r) {
  nlohmann::json out = {{"schema", "sluice.bench.step/1"},
                        {"op", r.op},
                        {"date", r.date},
                        {"version", r.version},
                        {"commit", r.commit},
                        {"command", r.command},
                        {"grid", r.grid},
                        {"machine", r.machine},
                        {"repeat", r.repeat},
                        {"bytes_per_second", r.bytes_per_second},
                        {"bytes_source", r.bytes_source},
                        {"rows", nlohmann::json::array()}};
  for (const StepRow& row : r.rows) out["rows"].push_back(to_json(row));
  return out;
}

void print_steps(const StepReport& r) {
  fmt::print("{}, sluice {} ({}), {}, {}\n", r.machine.value("name", "?"), r.version, r.commit,
             r.op, r.date);
  Table table({"<H/HV", "B", "T", "<state", "<writes", "us", "min", "p90", "GB/s", "floor us",
               "of copy", "host us", "<best peer", "peer us", "x peer", "goal", "<kernel"});
  for (const StepRow& row : r.rows) {
    const StepCell& c = row.cell;
    if (!row.failure.empty()) continue;
    const bool has_peer = !row.peers.empty();
    table.add({fmt::format("{}/{}", c.H, c.HV), std::to_string(c.B), std::to_string(c.T), c.state,
               writes_of(c), text_of(row.us, 2), text_of(row.us_min, 2), text_of(row.us_p90, 2),
               text_of(row.gb_per_s(), 0), text_of(row.floor_us, 2),
               text_of(100 * row.share(), 0) + "%", text_of(row.host_us, 2),
               has_peer ? row.peers.front().peer : "-",
               has_peer ? text_of(row.peers.front().us, 2) : "-", text_of(row.ratio(), 2),
               c.goal_us > 0 ? text_of(c.goal_us, 1) : "-", row.kernel});
  }
  table.print();
  for (const StepRow& row : r.rows) {
    if (row.failure.empty()) continue;
    fmt::print("{}/{} B {} T {} {}: {}\n", row.cell.H, row.cell.HV, row.cell.B, row.cell.T,
               row.cell.state, row.failure);
  }
  fmt::print(
      "us: one launch, median of {} replays of a graph whose launches each have states of their "
      "own "
      "(cold); least; 9th decile.\nfloor: bytes at {:.0f} GB/s ({}). host us: until a call "
      "returns. Peers: measured or published elsewhere,\nnot in this run "
      "(benchmarks/peers/README.md).\n",
      r.repeat, r.bytes_per_second * 1e-9, r.bytes_source);
}

}  // namespace sluice::tools
