// Implements `sluice bench cpu`: times the delta rule on the host, beside peers and the machine's
// own limits, in one process and in turns.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "check/comparer.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/cpu_contender.hpp"
#include "tools/bench/cpu_probe.hpp"
#include "tools/bench/rows.hpp"
#include "tools/call.hpp"
#include "tools/commands.hpp"
#include "tools/terminal.hpp"

namespace sluice::tools {
namespace {

// More than the last-level cache of common CPUs: states that decode finds cold.
constexpr double kColdBytes = 256e6;
// Seconds of each probe in each round.
constexpr double kProbeSeconds = 0.02;

struct Measurement {
  std::string name, failure;  ///< failure: what run() said, or empty
  Spread wall, cpu;           ///< cpu: of the whole process
  int64_t state_number_bytes = 4;
  size_t scratch_bytes = 0;
  double error = 0;  ///< relative L2 of the sample against the reference, NaN if not comparable
};

double sample_error(const BenchProblem& problem, const Contender& contender) {
  if (!contender.comparable()) return kUnknown;
  const check::Array answer =
      sample_answer(problem, contender.head_map(), contender.state_layout());
  if (answer.empty()) return kUnknown;
  const TensorView sample = contender.output().sliced(0, 0, 1).sliced(1, 0, answer.shape[1]);
  const check::Comparison comparison = check::compare_tokens(sample, check::view_of(answer));
  return comparison.fault.empty() ? comparison.relative_l2 : kUnknown;
}

struct Samples {
  std::vector<double> wall, cpu;
};

// Runs one contender for a while.
void run_turn(Contender& contender, double seconds, Samples* samples) {
  const Stopwatch watch;
  const double cpu = process_seconds();
  int calls = 0;
  double elapsed = 0;
  do {
    contender.run();
    ++calls;
    elapsed = watch.seconds();
  } while (elapsed < seconds);
  samples->wall.push_back(elapsed / calls);
  samples->cpu.push_back((process_seconds() - cpu) / calls);
  contender.rest();
}

// Runs what may fail, unless this contender has failed before.
template <class Run>
void guarded(Measurement* out, Run run) {
  if (!out->failure.empty()) return;
  try {
    run();
  } catch (const std::runtime_error& error) {
    out->failure = error.what();
  }
}

/// First each contender once for its error (and to warm up), then rounds in which each runs for a
/// while in turn, so that what disturbs the machine disturbs all of them, then `beside()` for the probes.
std::vector<Measurement> measure(const BenchProblem& problem,
                                 const std::vector<std::unique_ptr<Contender>>& contenders,
                                 int rounds, double seconds, const std::function<void()>& beside) {
  std::vector<Measurement> results(contenders.size());
  std::vector<Samples> samples(contenders.size());
  for (size_t i = 0; i < contenders.size(); ++i) {
    results[i].name = contenders[i]->name();
    results[i].state_number_bytes = contenders[i]->state_number_bytes();
    guarded(&results[i], [&] {
      contenders[i]->run();
      results[i].error = sample_error(problem, *contenders[i]);
    });
    results[i].scratch_bytes = contenders[i]->scratch_bytes();
    contenders[i]->rest();
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      guarded(&results[i], [&] { run_turn(*contenders[i], seconds, &samples[i]); });
    }
    beside();
  }
  for (size_t i = 0; i < contenders.size(); ++i) {
    results[i].wall = spread_of(samples[i].wall);
    results[i].cpu = spread_of(samples[i].cpu);
  }
  return results;
}

struct BenchSettings {
  std::vector<std::string> models = {"qwen3-next"};
  std::vector<int64_t> tokens = {512, 2048};
  std::vector<int64_t> batches = {1}, steps = {1};
  std::vector<std::string> types = {"fp32"}, layouts = {"kv"};  ///< of decode's states
  std::string op = "both", states = "both", output;
  sluice_dtype dtype = check::kF32;
  int threads = 1;
  std::string pages = "huge";
  bool peers = true, layer = false, key_gates = false;
  int rounds = 9;
  double seconds = 0.05;  ///< at least, of each contender in each round
};

// One line of the plan.
struct Row {
  ModelShape model;
  int64_t B = 1, T = 1;
  bool decode = false, cold = false;

  std::string op() const { return !decode ? "prefill" : cold ? "decode, cold" : "decode, hot"; }
};

// What came of it.
struct RowResult {
  Row row;
  double flops = 0,
         states = 0;                    // states: bytes read and written, a byte each number
  Spread fma_gflops, bandwidth_gbytes;  // of the probes
  double huge_page_bytes = 0;           // of the process, while the row ran
  std::vector<Measurement> measurements;
};

std::vector<Row> plan(const BenchSettings& s) {
  std::vector<Row> rows;
  for (const std::string& name : s.models) {
    const ModelShape model = *find_model(name);
    if (s.op != "decode") {
      for (const int64_t T : s.tokens) rows.push_back({model, 1, T, false, false});
    }
    if (s.op == "prefill") continue;
    for (const int64_t B : s.batches) {
      for (const int64_t T : s.steps) {
        if (s.states != "cold") rows.push_back({model, B, T, true, false});
        if (s.states != "hot") rows.push_back({model, B, T, true, true});
      }
    }
  }
  return rows;
}

// Of prefill one; of decode every type with every layout.
std::vector<StateForm> forms_of(const Row& row, const BenchSettings& s) {
  if (!row.decode) return {StateForm{}};
  std::vector<StateForm> forms;
  for (const std::string& type : s.types) {
    for (const std::string& layout : s.layouts) {
      forms.push_back({dtype_named(type), layout == "vk" ? StateLayout::kVK : StateLayout::kKV});
    }
  }
  return forms;
}

// "1.5 MiB".
std::string size_text(size_t bytes) {
  const auto kibibytes = static_cast<double>(bytes) / 1024;
  return kibibytes < 1000 ? fmt::format("{:.0f} KiB", kibibytes)
                          : fmt::format("{:.1f} MiB", kibibytes / 1024);
}

RowResult bench_row(Machine& host, const Row& row, const BenchSettings& s) {
  const BenchProblem problem(host, row.model, row.B, row.T, row.decode, DType{s.dtype},
                             s.key_gates);
  RowResult result{row, problem.flops(), problem.state_bytes(1), {}, {}, 0, {}};
  const double footprint = problem.state_bytes() / 2;
  const int64_t slots = row.cold ? static_cast<int64_t>(kColdBytes / footprint) + 1 : 1;
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const StateForm& form : forms_of(row, s)) {
    contenders.push_back(make_sluice_contender(problem, form, slots, false));
  }
  const auto add = [&](std::unique_ptr<Contender> contender) {
    if (contender != nullptr) contenders.push_back(std::move(contender));
  };
  if (s.key_gates) add(make_sluice_contender(problem, StateForm{}, slots, true));
  if (s.threads > 1) add(make_one_thread_contender(problem, slots));
  if (s.layer) add(make_layer_contender(problem, slots));
  if (s.peers) add(make_ggml_contender(problem, slots, s.threads, false));
  if (s.peers && s.key_gates) add(make_ggml_contender(problem, slots, s.threads, true));
  if (s.peers) add(make_ik_contender(problem, slots, s.threads));
  BandwidthProbe memory(static_cast<size_t>(row.cold ? kColdBytes : footprint));
  std::vector<double> fma, bandwidth;
  result.measurements = measure(problem, contenders, s.rounds, s.seconds, [&] {
    if (!row.decode) fma.push_back(fma_peak(s.threads, kProbeSeconds));
    if (row.decode) bandwidth.push_back(memory.run(s.threads, kProbeSeconds));
  });
  result.fma_gflops = spread_of(fma);
  result.bandwidth_gbytes = spread_of(bandwidth);
  result.huge_page_bytes = tools::huge_page_bytes();
  return result;
}

// One thread: CPU time, which a neighbour disturbs less. More: wall time.
const Spread& judged(const Measurement& m, int threads) { return threads == 1 ? m.cpu : m.wall; }

void add_table_rows(const RowResult& result, int threads, Table* table) {
  const Measurement& own = result.measurements.front();
  for (const Measurement& m : result.measurements) {
    if (!m.failure.empty()) {
      table->add({result.row.model.name, result.row.op(), std::to_string(result.row.B),
                  std::to_string(result.row.T), m.name, "failed", "", "", "", "", "", "", "", ""});
      fmt::print(stderr, "{}: {}\n", m.name, m.failure);
      continue;
    }
    const double seconds = judged(m, threads).median;
    const bool decode = result.row.decode;
    const double bytes = result.states * static_cast<double>(m.state_number_bytes);
    const double rate = (decode ? bytes : result.flops) / seconds * 1e-9;
    const double limit = decode ? result.bandwidth_gbytes.median : result.fma_gflops.median;
    table->add({result.row.model.name, result.row.op(), std::to_string(result.row.B),
                std::to_string(result.row.T), m.name, seconds_text(m.wall.median),
                fmt::format("{:.0f}%", 100 * (m.wall.high - m.wall.low) / (2 * m.wall.median)),
                seconds_text(m.cpu.median),
                number_text(static_cast<double>(result.row.B * result.row.T) / m.wall.median),
                fmt::format("{:.1f} {}", rate, decode ? "GB/s" : "GFLOP/s"),
                fmt::format("{:.2f}", rate / limit),
                fmt::format("{:.2f}", seconds / judged(own, threads).median),
                m.scratch_bytes == 0 ? "" : size_text(m.scratch_bytes),
                std::isnan(m.error) ? "" : error_text(m.error)});
  }
}

nlohmann::json to_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

nlohmann::json to_json(const RowResult& result) {
  const Row& row = result.row;
  nlohmann::json out = {{"model", row.model.name},
                        {"op", row.decode ? "decode" : "prefill"},
                        {"B", row.B},
                        {"T", row.T},
                        {"H", row.model.H},
                        {"HV", row.model.HV},
                        {"K", row.model.K},
                        {"V", row.model.V},
                        {"flops", result.flops},
                        {"cold", row.cold}};
  out["limit"] = to_json(row.decode ? result.bandwidth_gbytes : result.fma_gflops);
  out["limit_unit"] = row.decode ? "GB/s read and written" : "GFLOP/s FMA";
  for (const Measurement& m : result.measurements) {
    nlohmann::json entry = {{"name", m.name},
                            {"wall_seconds", to_json(m.wall)},
                            {"cpu_seconds", to_json(m.cpu)},
                            {"scratch_bytes", m.scratch_bytes},
                            {"error_sample", m.error}};
    if (row.decode) {
      entry["state_bytes"] = result.states * static_cast<double>(m.state_number_bytes);
    }
    if (!m.failure.empty()) entry["failure"] = m.failure;
    out["measurements"].push_back(std::move(entry));
  }
  return out;
}

nlohmann::json machine(const BenchSettings& s) {
  std::vector<char> text(sluice_capability(nullptr, 0) + 1);
  sluice_capability(text.data(), text.size());
  return {{"date", utc_now()},
          {"cpu", cpu_name()},
          {"hardware_threads", std::thread::hardware_concurrency()},
          {"threads", s.threads},
          {"dtype", check::dtype_name(s.dtype)},
          {"pages", s.pages},
          {"sluice", sluice_version()},
          {"capability", text.data()},
          {"rounds", s.rounds},
          {"seconds_per_turn", s.seconds}};
}

int bench_cpu(const BenchSettings& s) {
  // Read by the library when its threads start, which has not happened yet.
  setenv("SLUICE_NUM_THREADS", std::to_string(s.threads).c_str(), 1);
  sluice_warm_up(kCpuDevice);
  ask_for_huge_pages(s.pages == "huge");
  const std::unique_ptr<Machine> host = make_host_machine();
  nlohmann::json report = machine(s);
  Table table({"<model", "<op", "B", "T", "<who", "wall", "+-", "cpu", "tokens/s", "rate",
               "of peak", "time/sluice", "scratch", "error"});
  const std::vector<Row> rows = plan(s);
  bool failed = false;
  for (size_t i = 0; i < rows.size(); ++i) {
    show_progress(i, rows.size(),
                  fmt::format("{} {} T {}", rows[i].model.name, rows[i].op(), rows[i].T));
    const RowResult result = bench_row(*host, rows[i], s);
    add_table_rows(result, s.threads, &table);
    report["rows"].push_back(to_json(result));
    report["rows"].back()["huge_page_bytes"] = result.huge_page_bytes;
    for (const Measurement& m : result.measurements) failed = failed || !m.failure.empty();
  }
  show_progress(rows.size(), rows.size(), "");
  report["peak_resident_bytes"] = peak_resident_bytes();
  fmt::print("{}, {}, {}, {} pages\n", cpu_name(), counted(s.threads, "thread"),
             check::dtype_name(s.dtype), s.pages);
  table.print();
  fmt::print(
      "Medians of {}; +- is half the middle half's width. rate and ratio by {} "
      "time.\nrate: prefill 7 K V FLOP per token and value head, of the FMA "
      "peak; decode state "
      "bytes "
      "read and written,\nof in-place read and write; both measured beside. "
      "error: the first {} "
      "tokens against float64.\n",
      counted(s.rounds, "interleaved round"), s.threads == 1 ? "CPU" : "wall", kSampleTokens);
  return write_record(s.output, report.dump(1) + '\n', failed ? kExitWrong : kExitDone);
}

void add_cpu_options(CLI::App* command, BenchSettings* s) {
  add_list(*command, "--model", &s->models,
           fmt::format("shapes: {}; with -tp2, -tp4 or -tp8; or H/HV, H/HV/KxV",
                       fmt::join(model_names(), ", ")))
      ->capture_default_str()
      ->check([](const std::string& name) {
        return find_model(name) ? std::string() : "no model '" + name + "' (see --help)";
      });
  add_checked(*command, "--op", &s->op, "prefill, decode or both",
              CLI::IsMember({"prefill", "decode", "both"}));
  const auto add_several = [&](const char* name, auto* values, const char* help,
                               const CLI::Validator& check) {
    add_list(*command, name, values, help)->check(check)->capture_default_str();
  };
  add_several("--T", &s->tokens, "prefill lengths", CLI::Range(2, 1 << 20));
  add_several("--B", &s->batches, "decode batches", CLI::Range(1, 4096));
  add_several("--steps", &s->steps, "tokens of a sequence in a decode call", CLI::Range(1, 16));
  add_several("--state-type", &s->types, "decode with states in fp32, bf16, fp16",
              CLI::IsMember({"fp32", "bf16", "fp16"}));
  add_several("--state-layout", &s->layouts, "decode with states laid out kv, vk",
              CLI::IsMember({"kv", "vk"}));
  add_checked(*command, "--states", &s->states, "decode with hot, cold or both kinds of states",
              CLI::IsMember({"hot", "cold", "both"}));
  add_dtype_option(*command, &s->dtype);
  add_checked(*command, "--threads", &s->threads, "of each contender", CLI::Range(1, 1024));
  add_checked(*command, "--rounds", &s->rounds, "interleaved rounds", CLI::Range(1, 1000));
  add_checked(*command, "--seconds", &s->seconds, "at least, of each turn in a round",
              CLI::PositiveNumber);
  add_checked(*command, "--pages", &s->pages,
              "of everybody's memory: huge (2 MiB, where the system grants "
              "them) or small",
              CLI::IsMember({"huge", "small"}));
  command->add_flag("--key-gates", s->key_gates, "time key-wise gates (KDA) beside gates of heads");
  command->add_flag("--layer", s->layer, "time the whole layer beside its delta rule");
  command->add_flag("!--no-peers", s->peers, "leave out the peers that were linked in");
  command->add_option("-o,--output", s->output, "write everything measured as JSON");
}

}  // namespace

Action add_bench_cpu(CLI::App& bench) {
  CLI::App* cpu = bench.add_subcommand("cpu", "The delta rule on the host, beside peers");
  auto settings = std::make_shared<BenchSettings>();
  add_cpu_options(cpu, settings.get());
  cpu->footer(
      "Peers are linked in when the build is configured with "
      "-DSLUICE_GGML_DIR=<build directory>\n"
      "-DSLUICE_GGML_SOURCE_DIR=<source directory> "
      "-DSLUICE_IK_LLAMA_DIR=<source directory>.\n"
      "Everything runs in one process, in turns. With several threads "
      "Sluice on one thread takes "
      "its\nturns too, so that its time/sluice is the speed-up.\n"
      "Examples:\n"
      "  sluice bench cpu --model qwen3-next,qwen3.5-27b-tp2 --T "
      "512,2048 -o cpu.json\n"
      "  sluice bench cpu --op decode --B 1,8 --threads 2\n"
      "  sluice bench cpu --op decode --state-type fp32,bf16 "
      "--state-layout kv,vk\n"
      "  sluice bench cpu --op prefill --model "
      "16/16/64x64,8/24,4/16/256x256 --T 1000\n"
      "  sluice bench cpu --dtype bf16 --op prefill --layer\n"
      "  sluice bench cpu --model 32/32 --key-gates");
  return [settings] { return bench_cpu(*settings); };
}

}  // namespace sluice::tools
