#!/usr/bin/env bash
# Installs what is missing, builds Sluice in Release and runs a recorded Hugging Face layer.
#
#   scripts/quickstart.sh [--cuda WHEN] [BUILD_DIRECTORY]        (default: build/release)
#
# It takes at most 3 minutes on two cores, and needs Debian 12 or a relative of it, but no GPU.
# The CUDA kernels take 9 minutes more on two cores. --cuda (or the variable SLUICE_CUDA) says when
# they are built:
#   gpu    where a GPU is visible (nvidia-smi -L lists one) and nvcc is found; the default
#   nvcc   wherever nvcc is found
#   on     always; an error without nvcc
#   off    never
#
# Examples:
#   scripts/quickstart.sh                        the CPU half, or both halves beside a GPU
#   scripts/quickstart.sh --cuda on build/cuda   both halves, in a directory of their own
#   SLUICE_CUDA=off scripts/quickstart.sh        the CPU half, whatever the machine has
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/build.sh
parse_build_options "$@"
[ ${#rest[@]} -eq 0 ] || { echo "$0: unknown argument ${rest[0]}; see --help" >&2; exit 2; }

announce_build "$CPU_SECONDS_TOOL"
# shellcheck disable=SC2086  # word splitting is meant: this is a list
install_packages $SLUICE_BUILD_PACKAGES
configure_build -DSLUICE_BUILD_TESTS=OFF
run_build sluice_tool

echo "\$ sluice run examples/data/qwen3_next_layer.safetensors"
"$build/tools/sluice" run examples/data/qwen3_next_layer.safetensors
