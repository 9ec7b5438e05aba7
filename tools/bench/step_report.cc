// Prints steps as a table and writes them as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/step_report.hpp"

#include <fmt/core.h>

#include "tools/bench/rows.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

std::string writes_of(const StepCell& cell) {
  if (cell.ring > 0) return fmt::format("ring {} {}", cell.ring, cell.entry);
  return cell.per_token ? "per token" : "last";
}

/// The cell with a state after each token in place of the ring.
StepCell without_ring(const StepCell& cell, int64_t T) {
  StepCell plain = cell;
  plain.ring = 0, plain.T = T, plain.per_token = T > 1;
  return plain;
}

/// What the ring of a row saves: bytes by the account, time by the rows of this run.
nlohmann::json ring_of(const StepReport& report, const StepRow& row) {
  const StepCell& c = row.cell;
  if (c.ring == 0) return {};
  const StepRow* const same = row_without_ring(report, c, c.T);
  const StepRow* const plain = row_without_ring(report, c, 1);
  const double bytes = step_bytes(without_ring(c, c.T));
  return {{"entries", c.ring},
          {"entry", c.entry},
          {"bytes_without_ring", bytes},
          {"saved_gb", 1e-9 * (bytes - row.bytes)},
          {"saved_us", same != nullptr ? same->us - row.us : kUnknown},
          {"us_over_plain_step", plain != nullptr ? row.us / plain->us : kUnknown}};
}

nlohmann::json to_json(const StepReport& report, const StepRow& row) {
  const StepCell& c = row.cell;
  nlohmann::json out = {{"H", c.H},
                        {"HV", c.HV},
                        {"K", c.K},
                        {"V", c.V},
                        {"key_gates", c.key_gates},
                        {"B", c.B},
                        {"T", c.T},
                        {"state", c.state},
                        {"vk", c.vk},
                        {"packed", c.packed},
                        {"writes", writes_of(c)},
                        {"kernel", row.kernel},
                        {"failure", row.failure},
                        {"us", row.us},
                        {"us_min", row.us_min},
                        {"us_p90", row.us_p90},
                        {"host_us", row.host_us},
                        {"launches", row.launches},
                        {"bytes", row.bytes},
                        {"gb_per_s", 1e-3 * row.bytes / row.us},
                        {"floor_us", row.floor_us},
                        {"share_of_copy", row.floor_us / row.us},
                        {"goal_us", c.goal_us > 0 ? c.goal_us : kUnknown},
                        {"ratio_to_best_peer", kUnknown},
                        {"ring", ring_of(report, row)},
                        {"peers", nlohmann::json::array()}};
  for (const StepPeer& peer : row.peers) {
    out["peers"].push_back({{"peer", peer.peer}, {"us", peer.us}});
  }
  if (!row.peers.empty()) out["ratio_to_best_peer"] = row.peers.front().us / row.us;
  return out;
}

}  // namespace

const StepRow* row_without_ring(const StepReport& report, const StepCell& cell, int64_t T) {
  const StepCell plain = without_ring(cell, T);
  for (const StepRow& row : report.rows) {
    const StepCell& c = row.cell;
    if (c.ring == 0 && c.H == plain.H && c.HV == plain.HV && c.K == plain.K && c.V == plain.V &&
        c.B == plain.B && c.T == plain.T && c.state == plain.state && c.vk == plain.vk &&
        c.per_token == plain.per_token && row.failure.empty()) {
      return &row;
    }
  }
  return nullptr;
}

nlohmann::json to_json(const StepReport& r) {
  const StepSettings& s = r.settings;
  nlohmann::json out = {{"schema", "sluice.bench.step/1"},
                        {"op", s.cell.layer ? "layer_decode" : "recurrent_step"},
                        {"date", r.date},
                        {"version", r.version},
                        {"commit", s.run.commit},
                        {"command", s.command},
                        {"grid", s.grid},
                        {"machine", r.machine},
                        {"repeat", s.run.repeat},
                        {"bytes_per_second", r.ceilings.bytes_per_second},
                        {"bytes_source", r.ceilings.bytes_source},
                        {"rows", nlohmann::json::array()}};
  for (const StepRow& row : r.rows) out["rows"].push_back(to_json(r, row));
  return out;
}

void print_steps(const StepReport& r) {
  const nlohmann::json record = to_json(r);
  fmt::print("{}, sluice {} ({}), {}, {}\n", r.machine.value("name", "?"), r.version,
             r.settings.run.commit, record["op"].get<std::string>(), r.date);
  const auto state = [](const nlohmann::json& row) {
    return row["state"].get<std::string>() + (row["vk"] ? " [V,K]" : "") +
           (row["packed"] ? " packed" : "");
  };
  const auto of_copy = [](const nlohmann::json& row) {
    return text_of(100 * number_in(row, "share_of_copy"), 0) + "%";
  };
  const std::vector<Column> columns = {{"<H/HV", heads().text},
                                       number("B", "B", 0),
                                       number("T", "T", 0),
                                       {"<state", state},
                                       word("<writes", "writes"),
                                       number("us", "us", 2),
                                       number("min", "us_min", 2),
                                       number("p90", "us_p90", 2),
                                       number("GB/s", "gb_per_s", 0),
                                       number("floor us", "floor_us", 2),
                                       {"of copy", of_copy},
                                       number("host us", "host_us", 2),
                                       {"<best peer", best_peer},
                                       peer_time("peer us", "us", 2),
                                       number("x peer", "ratio_to_best_peer", 2),
                                       number("goal", "goal_us", 1),
                                       kernel()};
  print_results(columns, record["rows"], [](const nlohmann::json& row) {
    return fmt::format("{} B {} T {} {}", heads().text(row), row["B"].get<int64_t>(),
                       row["T"].get<int64_t>(), row["state"].get<std::string>());
  });
  for (const StepRow& row : r.rows) {
    if (row.cell.ring == 0 || !row.failure.empty()) continue;
    const nlohmann::json ring = ring_of(r, row);
    fmt::print(
        "ring, B {} T {} {}, entries {}: {} GB less than states of every token, {} us less, "
        "{} of a plain step\n",
        row.cell.B, row.cell.T, row.cell.state, row.cell.entry,
        text_of(number_in(ring, "saved_gb"), 3), text_of(number_in(ring, "saved_us"), 2),
        text_of(number_in(ring, "us_over_plain_step"), 2));
  }
  fmt::print(
      "us: one launch, median of {} of a graph whose launches each have states of their own "
      "(cold); least; 9th decile.\nfloor: bytes at {:.0f} GB/s ({}). host us: until a call "
      "returns. Peers: measured or published elsewhere,\nnot in this run "
      "(benchmarks/peers/README.md).\n",
      counted(r.settings.run.repeat, "replay"), r.ceilings.bytes_per_second * 1e-9,
      r.ceilings.bytes_source);
}

}  // namespace sluice::tools
