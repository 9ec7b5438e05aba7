// Runs a prefill of one sequence: 100 tokens, 2 key heads, 4 value heads, head dimension 64.
// [readme-cpp]
#include <cstdio>
#include <sluice/sluice.hpp>
#include <vector>
int main() {
  const int64_t B = 1, T = 100, H = 2, HV = 4, K = 64, V = 64;
  std::vector<float> q(B * T * H * K, 0.1f), k = q, v(B * T * HV * V, 1.0f), o(v.size());
  std::vector<float> g(B * T * HV, -0.05f), beta(g.size(), 0.5f), state(B * HV * K * V);
  const sluice::ChunkForwardArgs args{
      .q{q.data(), {B, T, H, K}}, .k{k.data(), {B, T, H, K}}, .v{v.data(), {B, T, HV, V}},
      .gate{g.data(), {B, T, HV}}, .beta{beta.data(), {B, T, HV}}, .o{o.data(), {B, T, HV, V}},
      .state{.final{state.data(), {B, HV, K, V}}}, .qk_norm = sluice::QkNorm::kL2};
  sluice::HostWorkspace scratch;  // grows once, reused by later calls
  const auto status = chunk_forward(args, scratch.reserve(workspace_size(args).value.bytes));
  if (!status.ok()) return std::puts(status.message), 1;
  return std::printf("o = %.6f\n", double(o.back())), 0;  // o = 0.119187
}
// [readme-cpp]
