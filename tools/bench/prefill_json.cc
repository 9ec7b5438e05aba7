// Writes prefill rows as JSON.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <stdexcept>

#include "check/array.hpp"
#include "tools/bench/prefill_report.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kSchema = "sluice.bench.prefill/1";

double number_or_unknown(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = json.at(key);
  return value.is_null() ? kUnknown : value.get<double>();
}

void read_cell(const nlohmann::json& json, Cell* cell) {
  json.at("H").get_to(cell->H);
  json.at("HV").get_to(cell->HV);
  json.at("K").get_to(cell->K);
  json.at("V").get_to(cell->V);
  const std::string trouble = parse_lengths(json.at("lengths").get<std::string>(), &cell->lengths);
  if (!trouble.empty()) throw std::runtime_error(trouble);
}

nlohmann::json to_json(const PeerTime& peer) {
  return {{"peer", peer.peer},
          {"source", peer.source},
          {"gates", peer.gates},
          {"dtype", peer.dtype},
          {"ms", peer.ms}};
}

nlohmann::json to_json(const PrefillRow& row) {
  nlohmann::json out = {{"H", row.cell.H},
                        {"HV", row.cell.HV},
                        {"K", row.cell.K},
                        {"V", row.cell.V},
                        {"lengths", lengths_text(row.cell.lengths)},
                        {"goal_ms", row.cell.goal_ms > 0 ? row.cell.goal_ms : kUnknown},
                        {"split", row.way.name},
                        {"segments", row.segments},
                        {"kernel", row.kernel},
                        {"failure", row.failure},
                        {"ms", row.ms},
                        {"ms_min", row.ms_min},
                        {"ms_p90", row.ms_p90},
                        {"host_us", row.host_us},
                        {"clock_mhz", row.clock_mhz},
                        {"us_per_chunk_head", row.us_per_chunk_head},
                        {"tflops", row.tflops},
                        {"gb_per_s", row.gb_per_s},
                        {"floor_ms", row.floor_ms},
                        {"floor", row.memory_floor ? "memory" : "arithmetic"},
                        {"share_of_floor", row.floor_ms / row.ms},
                        {"error_o", row.error_o},
                        {"error_state", row.error_state},
                        {"ratio_to_best_peer", row.ratio()},
                        {"peers", nlohmann::json::array()}};
  for (const PeerTime& peer : row.peers) out["peers"].push_back(to_json(peer));
  return out;
}

PrefillRow row_from(const nlohmann::json& json) {
  PrefillRow row;
  read_cell(json, &row.cell);
  const double goal = number_or_unknown(json, "goal_ms");
  row.cell.goal_ms = std::isnan(goal) ? 0 : goal;
  const std::string trouble = parse_split_way(json.value("split", "auto"), &row.way);
  if (!trouble.empty()) throw std::runtime_error(trouble);
  row.segments = json.value("segments", int64_t{0});
  json.at("kernel").get_to(row.kernel);
  json.at("failure").get_to(row.failure);
  row.ms = number_or_unknown(json, "ms");
  row.ms_min = number_or_unknown(json, "ms_min");
  row.ms_p90 = number_or_unknown(json, "ms_p90");
  row.host_us = number_or_unknown(json, "host_us");
  row.clock_mhz = number_or_unknown(json, "clock_mhz");
  row.us_per_chunk_head = number_or_unknown(json, "us_per_chunk_head");
  row.tflops = number_or_unknown(json, "tflops");
  row.gb_per_s = number_or_unknown(json, "gb_per_s");
  row.floor_ms = number_or_unknown(json, "floor_ms");
  row.memory_floor = json.at("floor") == "memory";
  row.error_o = number_or_unknown(json, "error_o");
  row.error_state = number_or_unknown(json, "error_state");
  for (const nlohmann::json& peer : json.at("peers")) {
    row.peers.push_back({peer.at("peer"), peer.at("source"), row.cell, peer.at("gates"),
                         peer.at("dtype"), peer.at("ms")});
  }
  return row;
}

}  // namespace

std::vector<PrefillRow> own_choices(const std::vector<PrefillRow>& rows) {
  std::vector<PrefillRow> out;
  for (const PrefillRow& row : rows) {
    if (row.way.split == Split::kAuto) out.push_back(row);
  }
  return out.empty() ? rows : out;
}

PeerSummary summary_of(const std::vector<PrefillRow>& rows) {
  PeerSummary out;
  double logarithms = 0;
  for (const PrefillRow& row : own_choices(rows)) {
    if (std::isnan(row.ratio())) continue;
    ++out.compared;
    out.slower += row.ratio() < 1 ? 1 : 0;
    logarithms += std::log(row.ratio());
  }
  if (out.compared > 0) out.mean = std::exp(logarithms / out.compared);
  return out;
}

ChoiceSummary choices_of(const std::vector<PrefillRow>& rows) {
  constexpr double kWithin = 0.95;
  ChoiceSummary out;
  for (const PrefillRow& own : rows) {
    if (own.way.split != Split::kAuto || std::isnan(own.ms)) continue;
    double best = kUnknown;
    for (const PrefillRow& forced : rows) {
      const bool same = heads_text(forced.cell) == heads_text(own.cell) &&
                        forced.cell.lengths == own.cell.lengths;
      if (same && forced.way.split != Split::kAuto && !(forced.ms >= best)) best = forced.ms;
    }
    if (std::isnan(best)) continue;
    ++out.cells;
    out.within += best / own.ms >= kWithin ? 1 : 0;
    if (out.worst <= best / own.ms) continue;
    out.worst = best / own.ms;
    out.worst_cell = heads_text(own.cell) + " " + lengths_text(own.cell.lengths);
  }
  return out;
}

double error_limit(const std::string& dtype) {
  return dtype == "bf16" ? 1e-2 : dtype == "fp16" ? 2e-3 : 1e-4;
}

bool is_wrong(const PrefillRow& row, const std::string& dtype) {
  const double limit = error_limit(dtype);
  return !(row.error_o <= limit) || !(row.error_state <= limit);
}

std::string short_dtype(sluice_dtype dtype) {
  if (check::same_dtype(dtype, check::kBF16)) return "bf16";
  return check::same_dtype(dtype, check::kF16) ? "fp16" : "fp32";
}

nlohmann::json to_json(const PrefillReport& report) {
  const PeerSummary summary = summary_of(report.rows);
  const ChoiceSummary choices = choices_of(report.rows);
  nlohmann::json out = {{"schema", kSchema},
                        {"date", report.date},
                        {"sluice", report.version},
                        {"commit", report.commit},
                        {"command", report.command},
                        {"backend", report.backend},
                        {"machine", report.machine},
                        {"settings",
                         {{"grid", report.grid},
                          {"gates", report.gates},
                          {"dtype", report.dtype},
                          {"history", report.history},
                          {"max_tokens", report.lengths_known ? "given" : "withheld"},
                          {"repeat", report.repeat},
                          {"rest_ms", report.rest_ms},
                          {"caches", report.cold ? "cold" : "warm"}}},
                        {"ceilings",
                         {{"flop_per_second", report.ceilings.flop_per_second},
                          {"flop_source", report.ceilings.flop_source},
                          {"bytes_per_second", report.ceilings.bytes_per_second},
                          {"bytes_source", report.ceilings.bytes_source}}},
                        {"first_call",
                         {{"start_ms", report.first_call.start_ms},
                          {"first_ms", report.first_call.first_ms},
                          {"second_ms", report.first_call.second_ms}}},
                        {"summary",
                         {{"cells_with_peers", summary.compared},
                          {"cells_slower_than_best_peer", summary.slower},
                          {"geometric_mean_ratio", summary.mean},
                          {"cells_with_forced_ways", choices.cells},
                          {"choices_within_5_percent", choices.within},
                          {"worst_choice", choices.worst},
                          {"worst_choice_cell", choices.worst_cell}}},
                        {"rows", nlohmann::json::array()}};
  for (const PrefillRow& row : report.rows) out["rows"].push_back(to_json(row));
  return out;
}

std::string record_text(const nlohmann::json& record) {
  nlohmann::json head = record;
  head.erase("rows");
  std::string text = head.dump(1);
  text.erase(text.rfind("\n}"));
  const char* separator = ",\n \"rows\": [\n  ";
  for (const nlohmann::json& row : record.at("rows")) {
    text += separator + row.dump();
    separator = ",\n  ";
  }
  return text + "\n ]\n}\n";
}

PrefillReport prefill_report_from(const nlohmann::json& json) {
  try {
    if (json.at("schema") != kSchema) {
      throw std::runtime_error("schema is not " + std::string(kSchema));
    }
    PrefillReport out;
    json.at("date").get_to(out.date);
    json.at("sluice").get_to(out.version);
    json.at("commit").get_to(out.commit);
    json.at("command").get_to(out.command);
    json.at("backend").get_to(out.backend);
    out.machine = json.at("machine");
    const nlohmann::json& settings = json.at("settings");
    settings.at("grid").get_to(out.grid);
    settings.at("gates").get_to(out.gates);
    settings.at("dtype").get_to(out.dtype);
    out.history = settings.value("history", "strict");
    out.lengths_known = settings.value("max_tokens", "withheld") == "given";
    settings.at("repeat").get_to(out.repeat);
    settings.at("rest_ms").get_to(out.rest_ms);
    out.cold = settings.at("caches") == "cold";
    const nlohmann::json& ceilings = json.at("ceilings");
    out.ceilings = {ceilings.at("flop_per_second"), ceilings.at("bytes_per_second"),
                    ceilings.at("flop_source"), ceilings.at("bytes_source")};
    const nlohmann::json& first = json.at("first_call");
    out.first_call = {number_or_unknown(first, "start_ms"), number_or_unknown(first, "first_ms"),
                      number_or_unknown(first, "second_ms")};
    for (const nlohmann::json& row : json.at("rows")) out.rows.push_back(row_from(row));
    return out;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("no record of bench prefill: ") + error.what());
  }
}

}  // namespace sluice::tools
