// Measures the rate of the matrix unit on its own, as a ceiling for kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_TOOLS_BENCH_MATMUL_PROBE_H_
#define SLUICE_TOOLS_BENCH_MATMUL_PROBE_H_

namespace sluice::tools {

/// bfloat16 FLOP per second of wgmma m64n128k16 with both operands in shared memory, random data,
/// all multiprocessors, after the clocks have settled under that load (about 0.2 s). 0 where the
/// device has no such instruction.
double matmul_flops_per_second();

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BENCH_MATMUL_PROBE_H_
