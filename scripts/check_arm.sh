#!/usr/bin/env bash
# Checks the CPU backend for 64-bit Arm: cross-compiles the library and the parity tests and runs a part of
# them under qemu, where Debian has what that takes: scripts/check_arm.sh [1: all of that part]
# Exit status 77: a package could not be had.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
install_packages g++-aarch64-linux-gnu qemu-user-static libhwy-dev

# The other architecture's libraries, unpacked beside the build: the system stays as it is.
build=$PWD/build/arm64
root=$build/root
mkdir -p "$root" "$build/lists/partial"
apt=(-oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists="$build/lists")
if [ ! -e "$root/usr/lib/aarch64-linux-gnu/libhwy.so.1" ]; then
  (cd "$build" && apt-get -qq "${apt[@]}" update && apt-get -qq "${apt[@]}" download libhwy1 libgtest-dev) \
    >/dev/null 2>&1 || exit 77
  for package in "$build"/*.deb; do dpkg -x "$package" "$root"; done
  mkdir -p "$root/include" && ln -sfn /usr/include/hwy "$root/include/hwy"
fi

libraries=$root/usr/lib/aarch64-linux-gnu
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
{
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
    "${launcher[@]}" -DSLUICE_CUDA=OFF -DSLUICE_BUILD_TOOLS=OFF \
    -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST \
    -DHIGHWAY_INCLUDE_DIR="$root/include" -DHIGHWAY_LIBRARY="$libraries/libhwy.so.1" \
    -DGTest_DIR="$libraries/cmake/GTest"
  cmake --build "$build" --target sluice_parity_tests
} >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; exit 1; }

# A sample of what can differ by instruction set: every twelfth row of these, a process for each core.
filter='Ladder/*:Keys/*:Tokens/*:Decays/*:Sizes/*:Prefill/Layer*:Decode/Layer*:Options/Causal*:-*Slow*'
processes=$(nproc)
pids=()
for ((process = 0; process < processes; ++process)); do
  LD_LIBRARY_PATH=$libraries GTEST_TOTAL_SHARDS=$((${1:-12} * processes)) \
    GTEST_SHARD_INDEX=$((${1:-12} * process)) \
    qemu-aarch64-static -L /usr/aarch64-linux-gnu "$build/tests/sluice_parity_tests" --gtest_brief=1 \
    --gtest_filter="$filter" &
  pids+=($!)
done
failed=0
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
exit "$failed"
