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
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  const double bytes = step_bytes(without_ring(c, c.T));
  return {{"entries", c.ring},
          {"entry", c.entry},
          {"bytes_without_ring", bytes},
          {"saved_gb", 1e-9 * (bytes - row.bytes)},
          {"saved_us", number_or_null(same != nullptr ? same->us - row.us : unknown)},
          {"us_over_plain_step", number_or_null(plain != nullptr ? row.us / plain->us : unknown)}};
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
                        {"us", number_or_null(row.us)},
                        {"us_min", number_or_null(row.us_min)},
                        {"us_p90", number_or_null(row.us_p90)},
                        {"host_us", number_or_null(row.host_us)},
                        {"launches", row.launches},
                        {"bytes", row.bytes},
                        {"gb_per_s", number_or_null(row.gb_per_s())},
                        {"floor_us", number_or_null(row.floor_us)},
                        {"share_of_copy", number_or_null(row.share())},
                        {"goal_us", c.goal_us > 0 ? nlohmann::json(c.goal_us) : nlohmann::json()},
                        {"ratio_to_best_peer", number_or_null(row.ratio())},
                        {"ring", ring_of(report, row)},
                        {"peers", nlohmann::json::array()}};
  for (const StepPeer& peer : row.peers) {
    out["peers"].push_back({{"peer", peer.peer}, {"us", peer.us}});
  }
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
  for (const StepRow& row : r.rows) out["rows"].push_back(to_json(r, row));
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
    table.add({fmt::format("{}/{}", c.H, c.HV), std::to_string(c.B), std::to_string(c.T),
               c.state + (c.vk ? " [V,K]" : "") + (c.packed ? " packed" : ""), writes_of(c),
               text_of(row.us, 2), text_of(row.us_min, 2), text_of(row.us_p90, 2),
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
  for (const StepRow& row : r.rows) {
    if (row.cell.ring == 0 || !row.failure.empty()) continue;
    const nlohmann::json ring = ring_of(r, row);
    const auto text = [&](const char* key, int digits) {
      return ring[key].is_null() ? "-" : text_of(ring[key].get<double>(), digits);
    };
    fmt::print(
        "ring, B {} T {} {}, entries {}: {} GB less than states of every token, {} us less, "
        "{} of a plain step\n",
        row.cell.B, row.cell.T, row.cell.state, row.cell.entry, text("saved_gb", 3),
        text("saved_us", 2), text("us_over_plain_step", 2));
  }
  fmt::print(
      "us: one launch, median of {} of a graph whose launches each have states of their "
      "own "
      "(cold); least; 9th decile.\nfloor: bytes at {:.0f} GB/s ({}). host us: until a call "
      "returns. Peers: measured or published elsewhere,\nnot in this run "
      "(benchmarks/peers/README.md).\n",
      counted(r.repeat, "replay"), r.bytes_per_second * 1e-9, r.bytes_source);
}

}  // namespace sluice::tools
