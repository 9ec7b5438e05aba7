#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each for a while on its corpus; fails on the first finding,
# which is left in the build directory. Inputs found on the way stay there too (corpus/), so that a
# later run goes on from them.
# Usage: fuzz/run.sh [SECONDS] [BUILD_DIRECTORY] [SEED]
#        fuzz/run.sh --merge [BUILD_DIRECTORY]
# SEED makes a run repeatable (CI's is, so that it judges the change and not the draw); without it
# every run looks elsewhere.
# --merge replaces fuzz/corpus by a small set of inputs, of those committed and found, that takes every
# branch which they all take; an input of more than 4 KiB is left out. Run it after a long run, or after the
# fuzzer has learnt to read its bytes otherwise, and commit what comes of it.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
merge=
if [ "${1:-}" = --merge ]; then
  merge=1
  set -- 0 "${@:2}"
fi
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
  -DCMAKE_CXX_FLAGS="-march=native -fsanitize=fuzzer-no-link" "${launcher[@]}" \
  -DSLUICE_SANITIZE=address,undefined -DSLUICE_CUDA=OFF -DSLUICE_WERROR=OFF \
  -DSLUICE_BUILD_TESTS=OFF -DSLUICE_BUILD_FUZZERS=ON >"$build/configure.log" 2>&1 || {
  cat "$build/configure.log"
  exit 1
}
cmake --build "$build" --target safetensors_fuzzer arguments_fuzzer

export SLUICE_NUM_THREADS=1
if [ -n "$merge" ]; then
  for target in safetensors arguments; do
    committed=$source_dir/fuzz/corpus/$target
    rm -rf "$build/merged"
    mkdir -p "$build/merged" "$build/corpus/$target"
    # Named files are those that people made: they stay, and what they reach counts as reached.
    find "$committed" -type f -name '*.*' -exec cp -t "$build/merged" {} +
    "$build/fuzz/${target}_fuzzer" -merge=1 -use_counters=0 -max_len=4096 "$build/merged" "$committed" \
      "$build/corpus/$target" 2>"$build/$target.merge.log" || {
      tail "$build/$target.merge.log"
      exit 1
    }
    find "$committed" -type f ! -name '*.*' -delete
    find "$build/merged" -type f ! -name '*.*' -printf '%f\n' | while read -r name; do
      cp "$build/merged/$name" "$committed/${name:0:12}"
    done
    echo "$target: $(find "$committed" -type f | wc -l) inputs, $(du -bs "$committed" | cut -f1) bytes"
  done
  exit 0
fi

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
