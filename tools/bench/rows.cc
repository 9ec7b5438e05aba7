// Times calls, prints tables of rows and makes records of them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/rows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "check/array.hpp"
#include "tools/bench/bench.hpp"
#include "tools/call.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
std::unique_ptr<Machine> machine_of(Implementation backend, double* start_seconds) {
  double seconds = 0;
  if (backend != Implementation::kCuda) return make_host_machine();
  return make_cuda_machine(start_seconds != nullptr ? start_seconds : &seconds);
}

Quantiles::Quantiles(std::vector<double> seconds, double scale) {
  std::sort(seconds.begin(), seconds.end());
  median = scale * seconds[seconds.size() / 2];
  least = scale * seconds.front();
  p90 = scale * seconds[9 * seconds.size() / 10];
}

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const size_t last = samples.size() - 1;
  return {samples[samples.size() / 2], samples[last / 4], samples[last - last / 4]};
}

double host_microseconds(Machine& machine, int calls, const std::function<void(int)>& call) {
  std::vector<double> seconds;
  machine.synchronize();
  for (int i = 0; i < calls; ++i) {
    const Stopwatch watch;
    call(i);
    seconds.push_back(watch.seconds());
  }
  machine.synchronize();
  return Quantiles(std::move(seconds), 1e6).median;
}

std::string text_of(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

double number_in(const nlohmann::json& row, const std::string& key) {
  const auto found = row.find(key);
  const bool known = found != row.end() && found->is_number();
  return known ? found->get<double>() : kUnknown;
}

std::string best_peer(const nlohmann::json& row) {
  const nlohmann::json& peers = row.at("peers");
  return peers.empty() ? "-" : peers[0].at("peer").get<std::string>();
}

std::string short_dtype(sluice_dtype dtype) {
  if (check::same_dtype(dtype, check::kBF16)) return "bf16";
  return check::same_dtype(dtype, check::kF16) ? "fp16" : "fp32";
}

Column number(std::string head, std::string key, int digits, double scale) {
  const auto text = [=](const nlohmann::json& row) {
    return text_of(scale * number_in(row, key), digits);
  };
  return {std::move(head), text, key};
}

Column error(std::string head, std::string key) {
  const auto text = [=](const nlohmann::json& row) {
    const double value = number_in(row, key);
    return std::isnan(value) ? "-" : error_text(value);
  };
  return {std::move(head), text, key};
}

Column word(std::string head, std::string key) {
  const auto text = [=](const nlohmann::json& row) { return row.value(key, std::string()); };
  return {std::move(head), text, key};
}

Column heads() {
  return {"H/HV", [](const nlohmann::json& row) {
            return fmt::format("{}/{}", row.at("H").get<int64_t>(), row.at("HV").get<int64_t>());
          }};
}

Column peer_time(std::string head, std::string key, int digits) {
  return {std::move(head), [=](const nlohmann::json& row) {
            const nlohmann::json& peers = row.at("peers");
            return peers.empty() ? "-" : text_of(number_in(peers[0], key), digits);
          }};
}

Column kernel() {
  return {"<kernel", [](const nlohmann::json& row) {
            const std::string failure = row.value("failure", std::string());
            return failure.empty() ? row.value("kernel", std::string()) : failure;
          }};
}

namespace {

void print_rows(const std::vector<Column>& columns, const std::vector<nlohmann::json>& rows) {
  std::vector<std::string> head;
  for (const Column& column : columns) head.push_back(column.head);
  Table table(head);
  for (const nlohmann::json& row : rows) {
    std::vector<std::string> line;
    for (const Column& column : columns) line.push_back(column.text(row));
    table.add(line);
  }
  table.print();
}

}  // namespace

void print_results(const std::vector<Column>& columns, const nlohmann::json& rows,
                   const std::function<std::string(const nlohmann::json&)>& name_of) {
  const auto failed = [](const nlohmann::json& row) { return row.at("failure") != ""; };
  std::vector<nlohmann::json> done;
  std::remove_copy_if(rows.begin(), rows.end(), std::back_inserter(done), failed);
  print_rows(columns, done);
  for (const nlohmann::json& row : rows) {
    if (failed(row)) fmt::print("{}: {}\n", name_of(row), row.at("failure").get<std::string>());
  }
}

void add_rates(double ms, double flops, double bytes, const Ceilings& ceilings,
               nlohmann::json* row) {
  const double floor =
      1e3 * std::max(flops / ceilings.flop_per_second, bytes / ceilings.bytes_per_second);
  row->update({{"tflop_per_s", 1e-9 * flops / ms},
               {"gb_per_s", 1e-6 * bytes / ms},
               {"floor_ms", floor},
               {"share_of_floor", floor / ms}});
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

namespace {

/// The record of a run; what a row lacks that others or the table have is null.
nlohmann::json record_of(const Benchmark& benchmark, const RunOptions& options,
                         const Machine& machine, const Ceilings& ceilings,
                         std::vector<nlohmann::json> rows) {
  std::set<std::string> keys;
  for (const Column& column : benchmark.columns) {
    if (!column.key.empty()) keys.insert(column.key);
  }
  for (nlohmann::json& row : rows) {
    row.emplace("kernel", "");
    row.emplace("failure", "");
    for (const auto& [key, value] : row.items()) keys.insert(key);
  }
  for (nlohmann::json& row : rows) {
    for (const std::string& key : keys) row.emplace(key, nullptr);
  }
  nlohmann::json record = {{"schema", benchmark.schema},
                           {"date", utc_now()},
                           {"sluice", sluice_version()},
                           {"commit", options.commit},
                           {"backend", backend_name(options.backend)},
                           {"dtype", short_dtype(options.dtype)},
                           {"repeat", options.repeat},
                           {"machine", machine.describe()},
                           {"copy_bytes_per_second", ceilings.bytes_per_second},
                           {"copy_source", ceilings.bytes_source},
                           {"flop_per_second", ceilings.flop_per_second},
                           {"flop_source", ceilings.flop_source},
                           {"rows", std::move(rows)}};
  if (!benchmark.more.is_null()) record.update(benchmark.more);
  return record;
}

}  // namespace

int bench_rows(const RunOptions& run, const Benchmark& benchmark) {
  if (const std::string reason = unavailable(run.backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  const std::unique_ptr<Machine> machine = machine_of(run.backend);
  const Ceilings ceilings = machine->measure_ceilings();
  const std::vector<nlohmann::json> rows = benchmark.measure(*machine, ceilings);
  fmt::print("{}, sluice {}\n", machine->name(), sluice_version());
  print_rows(benchmark.columns, rows);
  fmt::print("{}", benchmark.legend(ceilings));
  const nlohmann::json record = record_of(benchmark, run, *machine, ceilings, rows);
  const bool failed = std::any_of(rows.begin(), rows.end(),
                                  [](const auto& row) { return row.contains("failure"); });
  return write_record(run.json, record_text(record), failed ? kExitError : kExitDone);
}

}  // namespace sluice::tools
