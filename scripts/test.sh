#!/usr/bin/env bash
# Builds Sluice and runs every test that this machine can run. CUDA tests say why they are skipped
# where there is no GPU.
#   scripts/test.sh [build directory] [ctest arguments...]     (default: build/release)
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
build=${1:-build/release}
shift || true
mkdir -p "$build"
log=$build/build.log

# shellcheck disable=SC2086
install_packages $SLUICE_BUILD_PACKAGES $SLUICE_TEST_PACKAGES

echo "building in $build (log: $log)"
if ! {
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=ON &&
    cmake --build "$build"
} >"$log" 2>&1; then
  tail -60 "$log"
  exit 1
fi
progress=()
[ -t 1 ] && progress=(--progress)
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" "${progress[@]}" "$@"
