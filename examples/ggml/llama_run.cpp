// Runs a model in llama.cpp on random prompt tokens and generates greedily: prints the tokens, how many
// calls ran on Sluice, and processor seconds. The backend comes by GGML_BACKEND_PATH, or not at all.
//   llama_run MODEL PROMPT_TOKENS GENERATED_TOKENS THREADS
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

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Calls that ran on Sluice; -1 where the backend is not loaded.
long calls_on_sluice() {
  ggml_backend_reg_t registry = ggml_backend_reg_by_name("Sluice");
  if (registry == nullptr) return -1;
  void* const count = ggml_backend_reg_get_proc_address(registry, "sluice_ggml_calls");
  return reinterpret_cast<long (*)()>(count)();
}

std::vector<llama_token> prompt(int count, int vocabulary) {
  std::vector<llama_token> tokens(static_cast<size_t>(count));
  unsigned state = 1;
  for (llama_token& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<llama_token>((state >> 8) % static_cast<unsigned>(vocabulary));
  }
  return tokens;
}

llama_token best(llama_context* context, int vocabulary) {
  const float* const logits = llama_get_logits_ith(context, -1);
  return static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits);
}

int run(llama_model* model, int prompt_tokens, int generated, int threads) {
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  llama_context_params parameters = llama_context_default_params();
  parameters.n_ctx = static_cast<uint32_t>(prompt_tokens + generated);
  parameters.n_batch = static_cast<uint32_t>(prompt_tokens);
  parameters.n_threads = parameters.n_threads_batch = threads;
  llama_context* const context = llama_init_from_model(model, parameters);
  if (context == nullptr) return 1;
  std::vector<llama_token> tokens = prompt(prompt_tokens, vocabulary);
  const double start = processor_seconds();
  if (llama_decode(context, llama_batch_get_one(tokens.data(), prompt_tokens)) != 0) return 1;
  llama_token token = best(context, vocabulary);
  const double read = processor_seconds();
  std::vector<llama_token> made;
  for (int i = 0; i < generated; ++i) {
    made.push_back(token);
    if (llama_decode(context, llama_batch_get_one(&token, 1)) != 0) return 1;
    token = best(context, vocabulary);
  }
  const double done = processor_seconds();
  std::printf(
      "{\"prompt_seconds\": %.6f, \"generated_seconds\": %.6f, \"calls\": %ld, \"tokens\": [",
      read - start, done - read, calls_on_sluice());
  for (size_t i = 0; i < made.size(); ++i) std::printf(i == 0 ? "%d" : ", %d", made[i]);
  std::puts("]}");
  llama_free(context);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::puts("llama_run MODEL PROMPT_TOKENS GENERATED_TOKENS THREADS"), 1;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_model* const model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return std::puts("the model could not be read"), 1;
  const int status = run(model, std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]));
  llama_model_free(model);
  return status;
}
