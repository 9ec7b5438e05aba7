#!/usr/bin/env bash
# Installs what is missing, builds Sluice in Release and runs a recorded Hugging Face layer.
#   scripts/quickstart.sh [build directory]        (default: build/release)
# Needs Debian 12 or a relative of it. No GPU; the CUDA half is built where nvcc is found.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
build=${1:-build/release}
mkdir -p "$build"
log=$build/quickstart.log

# shellcheck disable=SC2086  # word splitting is meant: these are lists
install_packages $SLUICE_BUILD_PACKAGES

echo "building in $build (log: $log)"
if ! {
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_BUILD_TESTS=OFF &&
    cmake --build "$build" --target sluice_tool
} >"$log" 2>&1; then
  tail -40 "$log"
  exit 1
fi

echo "\$ sluice run examples/data/qwen3_next_layer.safetensors"
"$build/tools/sluice" run examples/data/qwen3_next_layer.safetensors
