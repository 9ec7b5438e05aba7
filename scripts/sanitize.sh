#!/usr/bin/env bash
# Builds with a sanitizer preset and runs the tests: scripts/sanitize.sh asan|tsan [ctest arguments...]
# The rows labelled slow are left to the Release run: under a sanitizer they only repeat paths.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
log=build/$preset.log
mkdir -p build
cmake --preset "$preset" >"$log" 2>&1 && cmake --build --preset "$preset" >>"$log" 2>&1 ||
  { tail -40 "$log"; exit 1; }
export UBSAN_OPTIONS=print_stacktrace=1
ctest --preset "$preset" -LE slow -j "$(nproc)" "$@"
