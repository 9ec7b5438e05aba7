#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each for a while on its corpus; fails on the first finding,
# which is left in the build directory. Inputs found on the way stay there too (corpus/), so that a
# later run goes on from them.
# Usage: fuzz/run.sh [SECONDS] [BUILD_DIRECTORY] [SEED]
# SEED makes a run repeatable (CI's is, so that it judges the change and not the draw); without it
# every run looks elsewhere.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
seconds=${1:-20}
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build=${2:-$source_dir/build/fuzz}
seed=${3:-0}
compiler=$(command -v clang++ || command -v clang++-14 || command -v clang++-19)

mkdir -p "$build"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
cmake -S "$source_dir" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1" -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O1 -g1" -DSLUICE_CPU_BASELINE=ON \
  -DCMAKE_C_COMPILER="${compiler/clang++/clang}" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link "${launcher[@]}" \
  -DSLUICE_SANITIZE=address,undefined -DSLUICE_CUDA=OFF -DSLUICE_WERROR=OFF \
  -DSLUICE_BUILD_TESTS=OFF -DSLUICE_BUILD_FUZZERS=ON >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log"
  exit 1
}
cmake --build "$build" --target safetensors_fuzzer arguments_fuzzer

export SLUICE_NUM_THREADS=1
# Each on a core of its own.
fuzz() {
  local target=$1
  mkdir -p "$build/corpus/$target"
  local options=(-seed="$seed" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048
    -print_final_stats=1 -artifact_prefix="$build/$target-finding-")
  local dictionary=$source_dir/fuzz/$target.dict
  if [ -f "$dictionary" ]; then options+=(-dict="$dictionary"); fi
  "$build/fuzz/${target}_fuzzer" "${options[@]}" "$build/corpus/$target" \
    "$source_dir/fuzz/corpus/$target" 2>"$build/$target.log"
}
declare -A started
for target in safetensors arguments; do
  fuzz "$target" &
  started[$target]=$!
done
failed=0
for target in safetensors arguments; do
  echo "== $target, $seconds s"
  if wait "${started[$target]}"; then
    grep -E 'stat::(number_of_executed_units|average_exec_per_sec)|cov:' "$build/$target.log" | tail -3
  else
    tail -60 "$build/$target.log"
    failed=1
  fi
done
exit "$failed"
