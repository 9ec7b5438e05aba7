#!/usr/bin/env bash
# Builds Sluice and runs every test that this machine can run.
#
#   scripts/test.sh [--cuda WHEN] [BUILD_DIRECTORY] [CTEST_ARGUMENT...]     (default: build/release)
#
# It takes at most 12 minutes on two cores. --cuda says when the CUDA kernels are built, as in
# scripts/quickstart.sh (gpu, nvcc, on, off; default gpu); their tests say why they are skipped where
# there is no GPU.
#
# Examples:
#   scripts/test.sh                              every test
#   scripts/test.sh build/release -R parity      the suites of that name
#   scripts/test.sh --cuda nvcc                  also compiles the CUDA kernels, where nvcc is found
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/build.sh
parse_build_options "$@"

announce_build "$((CPU_SECONDS_TOOL + CPU_SECONDS_TESTS))"
# shellcheck disable=SC2086
install_packages $SLUICE_BUILD_PACKAGES $SLUICE_TEST_PACKAGES
configure_build -DSLUICE_BUILD_TESTS=ON
run_build
progress=()
[ -t 1 ] && progress=(--progress)
ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" "${progress[@]}" \
  "${rest[@]}"
