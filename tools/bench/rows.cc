// Times calls, prints tables of rows and makes records of them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/rows.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "check/array.hpp"
#include "tools/bench/bench.hpp"
#include "tools/call.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

/// A row's number, NaN where there is none.
double number_in(const nlohmann::json& row, const std::string& key) {
  const auto found = row.find(key);
  const bool known = found != row.end() && found->is_number();
  return known ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

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

nlohmann::json number_or_null(double value) {
  return std::isnan(value) ? nlohmann::json(nullptr) : nlohmann::json(value);
}

std::string short_dtype(sluice_dtype dtype) {
  if (check::same_dtype(dtype, check::kBF16)) return "bf16";
  return check::same_dtype(dtype, check::kF16) ? "fp16" : "fp32";
}

Column number(std::string head, std::string key, int digits, double scale) {
  return {std::move(head), [key = std::move(key), digits, scale](const nlohmann::json& row) {
            return text_of(scale * number_in(row, key), digits);
          }};
}

Column error(std::string head, std::string key) {
  return {std::move(head), [key = std::move(key)](const nlohmann::json& row) {
            const double value = number_in(row, key);
            return std::isnan(value) ? "-" : error_text(value);
          }};
}

Column word(std::string head, std::string key) {
  return {std::move(head), [key = std::move(key)](const nlohmann::json& row) {
            return row.value(key, std::string());
          }};
}

Column heads() {
  return {"H/HV", [](const nlohmann::json& row) {
            return fmt::format("{}/{}", row.at("H").get<int64_t>(), row.at("HV").get<int64_t>());
          }};
}

Column kernel() {
  return {"<kernel", [](const nlohmann::json& row) {
            const std::string failure = row.value("failure", std::string());
            return failure.empty() ? row.value("kernel", std::string()) : failure;
          }};
}

void print_rows(const Machine& machine, const std::vector<Column>& columns,
                const std::vector<nlohmann::json>& rows) {
  fmt::print("{}, sluice {}\n", machine.name(), sluice_version());
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

/// The record of a run; what a row lacks that others have is null.
nlohmann::json record_of(const std::string& schema, const RunOptions& options,
                         const Machine& machine, const Ceilings& ceilings,
                         std::vector<nlohmann::json> rows) {
  std::set<std::string> keys;
  for (nlohmann::json& row : rows) {
    row.emplace("kernel", "");
    row.emplace("failure", "");
    for (const auto& [key, value] : row.items()) keys.insert(key);
  }
  for (nlohmann::json& row : rows) {
    for (const std::string& key : keys) row.emplace(key, nullptr);
  }
  return {{"schema", schema},
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
}

}  // namespace

int bench_rows(
    const RunOptions& run, const std::string& schema, const nlohmann::json& more,
    const std::function<std::vector<nlohmann::json>(Machine&, const Ceilings&, bool*)>& measure,
    const std::function<void(const std::vector<nlohmann::json>&, const Ceilings&, const Machine&)>&
        print) {
  if (const std::string reason = unavailable(run.backend); !reason.empty()) {
    return fail_unavailable(reason);
  }
  try {
    const std::unique_ptr<Machine> machine = machine_of(run.backend);
    const Ceilings ceilings = machine->measure_ceilings();
    bool failed = false;
    const std::vector<nlohmann::json> rows = measure(*machine, ceilings, &failed);
    print(rows, ceilings, *machine);
    nlohmann::json record = record_of(schema, run, *machine, ceilings, rows);
    record.update(more);
    return write_record(run.json, record_text(record), failed ? kExitError : kExitDone);
  } catch (const std::runtime_error& error) {
    return fail(error.what());
  }
}

}  // namespace sluice::tools
