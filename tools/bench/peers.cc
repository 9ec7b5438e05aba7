// Parses the tables of peers and finds the rows of a cell.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/peers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "tools/bench/work_memory.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kHeader = "peer,H,HV,lengths,gates,dtype,ms";

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

}  // namespace

void read_table(const PeerTable& table, const std::string& header,
                const std::function<std::string(const std::vector<std::string>&)>& read) {
  const size_t columns = split(header).size();
  std::istringstream stream(table.text);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    std::string trouble;
    const std::vector<std::string> fields = split(line);
    if (++number == 1) {
      if (line != header) trouble = fmt::format("'{}', expected '{}'", line, header);
    } else if (fields.size() != columns) {
      trouble = fmt::format("{} fields, expected {}", fields.size(), columns);
    } else {
      trouble = read(fields);
    }
    if (!trouble.empty()) {
      throw std::runtime_error(fmt::format("{}:{}: {}", table.source, number, trouble));
    }
  }
}

std::vector<PeerTime> parse_peers(const PeerTable& table) {
  std::vector<PeerTime> rows;
  read_table(table, kHeader, [&](const std::vector<std::string>& fields) {
    PeerTime& row = rows.emplace_back();
    row.source = table.source;
    row.peer = fields[0], row.gates = fields[4], row.dtype = fields[5];
    std::string trouble = parse_heads(fields[1] + "/" + fields[2], &row.cell);
    if (trouble.empty()) trouble = parse_lengths(fields[3], &row.cell.lengths);
    char* end = nullptr;
    row.ms = std::strtod(fields[6].c_str(), &end);
    if (trouble.empty() && (*end != '\0' || !(row.ms > 0))) {
      trouble = fmt::format("ms = '{}', expected a positive number", fields[6]);
    }
    return trouble;
  });
  return rows;
}

std::vector<PeerTime> peers_of(const std::vector<PeerTime>& all, const Cell& cell,
                               const std::string& gates, const std::string& dtype) {
  std::vector<PeerTime> same, other;
  if (cell.K != 128 || cell.V != 128 || dtype == "fp32") return same;
  for (const PeerTime& row : all) {
    const Cell& c = row.cell;
    if (c.H != cell.H || c.HV != cell.HV || c.lengths != cell.lengths) continue;
    if (are_key_wise(row.gates) != are_key_wise(gates)) continue;
    (row.gates == gates ? same : other).push_back(row);
  }
  std::vector<PeerTime>& found = same.empty() ? other : same;
  std::sort(found.begin(), found.end(),
            [](const PeerTime& a, const PeerTime& b) { return a.ms < b.ms; });
  return found;
}

const std::vector<PeerTime>& all_peers() {
  static const std::vector<PeerTime> kRows = [] {
    std::vector<PeerTime> rows;
    for (const PeerTable& table : embedded_peer_tables()) {
      const std::vector<PeerTime> more = parse_peers(table);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    return rows;
  }();
  return kRows;
}

}  // namespace sluice::tools
