// Runs a model in llama.cpp on random prompt tokens and generates greedily: prints the tokens, how many
// calls ran on Sluice, and seconds of every round, by the clock and of the processor. The backend comes
// by GGML_BACKEND_PATH, or not at all.
//   llama_run MODEL PROMPT_TOKENS GENERATED_TOKENS THREADS [ROUNDS [SEQUENCES [UBATCH]]]
// SPDX-License-Identifier: Apache-2.0
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

namespace {

struct Time {
  double wall, processor;
};

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Time now() { return {seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)}; }

/// Calls that ran on Sluice; -1 where the backend is not loaded.
long calls_on_sluice() {
  ggml_backend_reg_t registry = ggml_backend_reg_by_name("Sluice");
  if (registry == nullptr) return -1;
  void* const count = ggml_backend_reg_get_proc_address(registry, "sluice_ggml_calls");
  return reinterpret_cast<long (*)()>(count)();
}

std::vector<llama_token> prompt(int count, int vocabulary, int sequence) {
  std::vector<llama_token> tokens(static_cast<size_t>(count));
  unsigned state = 1 + static_cast<unsigned>(sequence);
  for (llama_token& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<llama_token>((state >> 8) % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

llama_token best(llama_context* context, int output, int vocabulary) {
  const float* const logits = llama_get_logits_ith(context, output);
  return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
}

void add(llama_batch* batch, llama_token token, int position, int sequence, bool logits) {
  const int i = batch->n_tokens++;
  batch->token[i] = token;
  batch->pos[i] = position;
  batch->n_seq_id[i] = 1;
  batch->seq_id[i][0] = sequence;
  batch->logits[i] = logits ? 1 : 0;
}

struct Shape {
  int prompt, generated, threads, rounds, sequences, ubatch;
};

struct Round {
  Time start, read, done;
  std::vector<llama_token> tokens;  ///< every sequence's first, then every sequence's second, ..
};

/// One prompt after the other, then a token of each sequence at a time.
bool play(llama_context* context, const Shape& shape, int vocabulary, llama_batch* batch,
          Round* round) {
  llama_memory_clear(llama_get_memory(context), true);
  llama_synchronize(context);
  round->start = now();
  std::vector<llama_token> last;
  for (int sequence = 0; sequence < shape.sequences; ++sequence) {
    const std::vector<llama_token> tokens = prompt(shape.prompt, vocabulary, sequence);
    batch->n_tokens = 0;
    for (int i = 0; i < shape.prompt; ++i)
      add(batch, tokens[i], i, sequence, i + 1 == shape.prompt);
    if (llama_decode(context, *batch) != 0) return false;
    last.push_back(best(context, shape.prompt - 1, vocabulary));
  }
  round->read = now();
  for (int i = 0; i < shape.generated; ++i) {
    round->tokens.insert(round->tokens.end(), last.begin(), last.end());
    batch->n_tokens = 0;
    for (int n = 0; n < shape.sequences; ++n) add(batch, last[n], shape.prompt + i, n, true);
    if (llama_decode(context, *batch) != 0) return false;
    for (int n = 0; n < shape.sequences; ++n) last[n] = best(context, n, vocabulary);
  }
  round->done = now();
  return true;
}

template <class Number>
void print_list(const char* name, const std::vector<Round>& rounds, Number number) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < rounds.size(); ++i)
    std::printf(i == 0 ? "%.6f" : ", %.6f", number(rounds[i]));
  std::printf("], ");
}

int run(llama_model* model, const Shape& shape) {
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = static_cast<uint32_t>((shape.prompt + shape.generated) * shape.sequences);
  parameters.n_batch = static_cast<uint32_t>(std::max(shape.prompt, shape.sequences));
  parameters.n_ubatch = static_cast<uint32_t>(shape.ubatch);
  parameters.n_seq_max = static_cast<uint32_t>(shape.sequences);
  parameters.n_threads = parameters.n_threads_batch = shape.threads;
  llama_context* const context = llama_init_from_model(model, parameters);
  if (context == nullptr) return 1;
  llama_batch batch = llama_batch_init(std::max(shape.prompt, shape.sequences), 0, 1);
  std::vector<Round> rounds(static_cast<size_t>(shape.rounds));
  bool same = true;
  for (Round& round : rounds) {
    if (!play(context, shape, vocabulary, &batch, &round)) return 1;
    same = same && round.tokens == rounds[0].tokens;
  }
  std::printf("{");
  print_list("prompt_seconds", rounds,
             [](const Round& r) { return r.read.processor - r.start.processor; });
  print_list("generated_seconds", rounds,
             [](const Round& r) { return r.done.processor - r.read.processor; });
  print_list("prompt_wall", rounds, [](const Round& r) { return r.read.wall - r.start.wall; });
  print_list("generated_wall", rounds, [](const Round& r) { return r.done.wall - r.read.wall; });
  std::printf("\"rounds_equal\": %s, \"calls\": %ld, \"tokens\": [", same ? "true" : "false",
              calls_on_sluice());
  const std::vector<llama_token>& made = rounds[0].tokens;
  for (size_t i = 0; i < made.size(); ++i) std::printf(i == 0 ? "%d" : ", %d", made[i]);
  std::puts("]}");
  llama_batch_free(batch);
  llama_free(context);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 8) {
    return std::puts(
               "llama_run MODEL PROMPT_TOKENS GENERATED_TOKENS THREADS [ROUNDS [SEQUENCES "
               "[UBATCH]]]"),
           1;
  }
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  const Shape shape = {number(2, 0), number(3, 0), number(4, 1),
                       number(5, 1), number(6, 1), number(7, 512)};
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_model* const model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return std::puts("the model could not be read"), 1;
  const int status = run(model, shape);
  llama_model_free(model);
  return status;
}
