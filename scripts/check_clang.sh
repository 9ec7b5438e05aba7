#!/usr/bin/env bash
# Builds library and unit tests with clang, warnings being errors, runs the tests and prints how many
# branches of src/core and src/io they take; fails below 90 % in either room.
#   scripts/check_clang.sh [--missed]     --missed also lists the lines whose branches are not all taken
#
# A branch is a condition of the source that can be true and false, as clang's own coverage counts it:
# each operand of && and || for itself. Edges of exceptions are no conditions and do not count, nor do
# conditions that the compiler knows; instances of a template count once.
set -euo pipefail
cd "$(dirname "$0")/.."
floor=90
build=build/clang
mkdir -p "$build"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
{ cmake --preset clang "${launcher[@]}" && cmake --build --preset clang --target sluice sluice_unit_tests; } \
  >"$build/build.log" 2>&1 || { grep -A8 -m20 -E 'error:|FAILED' "$build/build.log" || tail -40 "$build/build.log"; exit 1; }

rm -rf "$build/counts"
mkdir -p "$build/counts"
shards=$(nproc) pids=() failed=0
for ((shard = 0; shard < shards; ++shard)); do
  # %c: counters live in the file itself, so that children which end by _exit count too.
  LLVM_PROFILE_FILE="$build/counts/%p%c.profraw" GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
    "$build/tests/sluice_unit_tests" --gtest_brief=1 >"$build/unit.$shard.log" 2>&1 &
  pids+=("$!:$build/unit.$shard.log")
done
for entry in "${pids[@]}"; do
  wait "${entry%%:*}" || { tail -60 "${entry#*:}"; failed=1; }
  tail -1 "${entry#*:}"
done
[ "$failed" -eq 0 ] || exit 1
llvm-profdata merge -sparse "$build"/counts/*.profraw -o "$build/unit.profdata"
llvm-cov export "$build/tests/sluice_unit_tests" -instr-profile "$build/unit.profdata" \
  -skip-functions -skip-expansions >"$build/branches.json"
scripts/branches.py "$build/branches.json" --floor "$floor" "$@"
