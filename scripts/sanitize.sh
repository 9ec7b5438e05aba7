#!/usr/bin/env bash
# Builds with a sanitizer preset and runs the unit and parity tests: scripts/sanitize.sh asan|tsan
# Left to the Release run, since under a sanitizer they only repeat paths: rows named Slow, the last
# fifty of 150 random seeds, and batches, heads and widths that are large so that GPUs run another
# kernel. Under tsan every third row of parity. One process a shard, since starting a sanitized process
# costs more than most tests.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
log=build/$preset.log
mkdir -p build
{ cmake --preset "$preset" &&
  cmake --build --preset "$preset" --target sluice_unit_tests sluice_parity_tests; } >"$log" 2>&1 ||
  { tail -40 "$log"; exit 1; }

export UBSAN_OPTIONS=print_stacktrace=1
filter='-*Slow*:*RandomDelta*/seed1??:Models/RecurrentStep*:SingleTokens/*_many:Models/KeyGates*/384_*'
filter+=':Models/KeyGates*/1616_*:Context/SimulatedRanks*_wide:Halves/ChunkBackward*:*ChunkBackwardSegments*/128_*'
# What threads do does not depend on the inputs: under tsan ten random seeds, no hard ones, and neither
# key-wise gates of models' sizes nor gradients in 16 bits or with segments, which CPUs compute as others.
[ "$preset" = tsan ] &&
  filter+=':*RandomDelta*/seed??:*RandomDelta*/seed???:*HardInputs*:*RandomPrefill*/seed??:Dtypes/*:Ladder/*:Models/KeyGates*:NarrowHalves/*:*ChunkBackwardSegments*'
shards=$(nproc)
pids=()
for tests in sluice_unit_tests sluice_parity_tests; do
  each=1
  [ "$preset:$tests" = tsan:sluice_parity_tests ] && each=3
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$((each * shards)) GTEST_SHARD_INDEX=$((each * shard)) \
      "build/$preset/tests/$tests" --gtest_brief=1 --gtest_filter="$filter" \
      >"build/$preset/$tests.$shard.log" 2>&1 &
    pids+=("$!:build/$preset/$tests.$shard.log")
  done
done
failed=0
for entry in "${pids[@]}"; do
  wait "${entry%%:*}" || { tail -60 "${entry#*:}"; failed=1; }
  tail -1 "${entry#*:}"
done
exit "$failed"
