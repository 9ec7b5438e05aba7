// Declares what the commands of `sluice bench` share: times of calls, rows as JSON objects, the tables
// and the records made of them. Numbers that are not known are NaN, null in JSON.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_ROWS_HPP_
#define SLUICE_TOOLS_BENCH_ROWS_HPP_

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/bench/machine.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {

/// The machine of a backend. *start_seconds (may be null): what making a CUDA context took.
std::unique_ptr<Machine> machine_of(Implementation backend, double* start_seconds = nullptr);

/// Of the times of several calls, `scale` units a second.
struct Quantiles {
  double median, least, p90;
  Quantiles(std::vector<double> seconds, double scale);
};
/// Seconds of a call over several rounds: the median, and the middle half's ends.
struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> samples);

/// Median microseconds until one of `calls` calls returns that only enqueue their work.
double host_microseconds(Machine& machine, int calls, const std::function<void(int)>& call);

/// "-" for what is not known.
std::string text_of(double value, int digits);
/// A row's number, NaN where there is none.
double number_in(const nlohmann::json& row, const std::string& key);
/// The name of the first of a row's `peers`, "-" where there is none.
std::string best_peer(const nlohmann::json& row);
/// "bf16", "fp16", "fp32".
std::string short_dtype(sluice_dtype dtype);

/// A column of a table: its head ('<' first: left-aligned), a row's text in it, and the key in the
/// record of what it shows, empty where that is more than one.
struct Column {
  std::string head;
  std::function<std::string(const nlohmann::json&)> text;
  std::string key = {};
};
/// The number `key` times `scale`, with so many digits.
Column number(std::string head, std::string key, int digits, double scale = 1);
/// The number `key` as an error: "1.2e-07".
Column error(std::string head, std::string key);
/// The text `key`.
Column word(std::string head, std::string key);
/// H and HV as "16/32".
Column heads();
/// The time `key` of the first of a row's `peers`, with so many digits.
Column peer_time(std::string head, std::string key, int digits);
/// The kernel, or why there is none.
Column kernel();
/// Prints the table of rows without a `failure`, and a line for each of the others, which name_of(row) names.
void print_results(const std::vector<Column>& columns, const nlohmann::json& rows,
                   const std::function<std::string(const nlohmann::json&)>& name_of);

/// Rows of every cell. name_of(cell) and json_of(cell) say what it is, measure(cell, &rows) adds its
/// rows; where that throws std::runtime_error, a row with the reason follows.
template <class Cell, class Name, class Json, class Measure>
std::vector<nlohmann::json> measure_cells(const std::vector<Cell>& cells, Name name_of,
                                          Json json_of, Measure measure) {
  std::vector<nlohmann::json> rows;
  for (size_t i = 0; i < cells.size(); ++i) {
    show_progress(i, cells.size(), name_of(cells[i]));
    try {
      measure(cells[i], &rows);
    } catch (const std::runtime_error& error) {
      rows.push_back(json_of(cells[i]));
      rows.back()["failure"] = error.what();
    }
  }
  show_progress(1, 1, "");
  return rows;
}

/// Of a row that took `ms` milliseconds for so many FLOP and bytes: rates, floor and the share of it.
void add_rates(double ms, double flops, double bytes, const Ceilings& ceilings,
               nlohmann::json* row);

/// A record's text, a line for each row.
std::string record_text(const nlohmann::json& record);

/// What a benchmark measures, and how it shows that.
struct Benchmark {
  std::string schema;
  /// What its record has beside the rows.
  nlohmann::json more;
  /// The table; the record has all of their keys, null where a row has not measured one.
  std::vector<Column> columns;
  /// Gives the rows; std::runtime_error ends the run with its text.
  std::function<std::vector<nlohmann::json>(Machine&, const Ceilings&)> measure;
  /// What stands below the table.
  std::function<std::string(const Ceilings&)> legend;
};

/// Runs a benchmark on its backend, prints the table and writes the record. Returns the exit status.
int bench_rows(const RunOptions& run, const Benchmark& benchmark);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_ROWS_HPP_
