// Looks up what other implementations take on the same cells, from benchmarks/peers/*.csv.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_PEERS_HPP_
#define SLUICE_TOOLS_BENCH_PEERS_HPP_

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/cell.hpp"

namespace sluice::tools {

/// A file: its name without extension, and its text.
struct PeerTable {
  const char* source;
  const char* text;
};
/// The files compiled in: those of prefills, and that of steps.
const std::vector<PeerTable>& embedded_peer_tables();
PeerTable embedded_step_peers();

/// The fields of each line behind `header`, which names them; read(fields) returns what is wrong with
/// them, empty if nothing. Throws std::runtime_error that names the line if one is wrong.
void read_table(const PeerTable& table, const std::string& header,
                const std::function<std::string(const std::vector<std::string>&)>& read);

struct PeerTime {
  std::string peer, source;
  Cell cell;
  std::string gates, dtype;  ///< as --gates and --dtype name them
  double ms = 0;
};

/// The rows of a table; throws std::runtime_error that names the line if one is wrong.
std::vector<PeerTime> parse_peers(const PeerTable& table);

/// The rows of `all` for this cell's heads and lengths, fastest first. Rows for `gates` if there
/// are any, else those for other gates, but of either kind only beside its own. K = V = 128 and 16-bit elements only.
std::vector<PeerTime> peers_of(const std::vector<PeerTime>& all, const Cell& cell,
                               const std::string& gates, const std::string& dtype);

/// All rows compiled in.
const std::vector<PeerTime>& all_peers();

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_PEERS_HPP_
