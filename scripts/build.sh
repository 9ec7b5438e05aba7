#!/usr/bin/env bash
# Configures and builds Sluice for the other scripts, which source this file: options, packages, progress.
# shellcheck disable=SC2034,SC2120  # variables and arguments of the scripts that source this
#   parse_build_options "$@"    reads --help, --cuda and the build directory; the rest is in "${rest[@]}"
#   configure_build OPTION...   runs cmake in $build, quietly; says what went wrong if it fails
#   run_build TARGET...         runs ninja, one status line for each step
source scripts/packages.sh

# What nvcc and the C++ compiler cost, in CPU seconds (docs/ci.md): the estimates that scripts print.
CPU_SECONDS_TOOL=310
CPU_SECONDS_TESTS=480
CPU_SECONDS_CUDA=1030

# Prints the comment at the head of the script that runs: what --help shows.
usage() { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }

gpu_is_visible() { nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
has_nvcc() { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }

parse_build_options() {
  build=build/release
  cuda=${SLUICE_CUDA:-}
  rest=()
  local have_build=
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --cuda) cuda=${2:?--cuda needs one of gpu, nvcc, on, off}; shift ;;
      --cuda=*) cuda=${1#--cuda=} ;;
      --) shift; rest+=("$@"); break ;;
      -*) rest+=("$@"); break ;;
      *) if [ -z "$have_build" ]; then build=$1 have_build=1; else rest+=("$1"); fi ;;
    esac
    shift
  done
  case ${cuda,,} in
    gpu | nvcc | on | off) cuda=${cuda,,} ;;
    "") cuda=gpu; cuda_as_configured ;;
    *) echo "$0: --cuda $cuda, expected one of gpu, nvcc, on, off" >&2; exit 2 ;;
  esac
  case $cuda in
    gpu) if gpu_is_visible && has_nvcc; then cuda=on; else cuda=off; fi ;;
    nvcc) if has_nvcc; then cuda=on; else cuda=off; fi ;;
  esac
}

# A build directory that has the CUDA half keeps it, unless --cuda says otherwise.
cuda_as_configured() {
  if grep -qs '^SLUICE_CUDA:STRING=ON$' "$build/CMakeCache.txt"; then cuda=on; fi
}

# Says what will be built and about how long that takes from nothing: $1 CPU seconds without CUDA.
announce_build() {
  local seconds=$1 cores half
  cores=$(nproc)
  half="the CPU half"
  if [ "$cuda" = on ]; then
    seconds=$((seconds + CPU_SECONDS_CUDA)) half="the CPU half and the CUDA kernels"
  elif has_nvcc; then
    half="the CPU half (no GPU is visible; --cuda on builds the CUDA kernels too)"
  fi
  echo "Builds $half in $build."
  echo "From nothing that takes about $(((seconds / cores + 59) / 60)) minutes on $cores cores; afterwards only what changed."
}

configure_build() {
  mkdir -p "$build"
  local log=$build/configure.log
  if ! cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSLUICE_COMPILE_SECONDS=ON \
    "-DSLUICE_CUDA=${cuda^^}" "$@" >"$log" 2>&1; then
    tail -40 "$log"
    exit 1
  fi
}

run_build() {
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  NINJA_STATUS='[%f/%t, %es] ' cmake --build "$build" "${targets[@]}"
}
