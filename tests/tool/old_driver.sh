#!/usr/bin/env bash
# Measures what a user reads whose NVIDIA driver is older than the build's CUDA, with a stand-in for the driver.
# Usage: old_driver.sh TOOL SOURCE_DIR.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source "$(dirname "$0")/expect.sh"
built=$("$tool" info | sed -n 's/^cuda.runtime: \([0-9]*\)...$/\1/p')
[ -n "$built" ] || exit 77
command -v cc >/dev/null || exit 77
older=$((built - 1))
cat >driver.c <<'END'
int cuDriverGetVersion(int* version) { *version = VERSION; return 0; }
int cuInit(unsigned flags) { return (int)flags; }
END

# A driver of another release of CUDA in a folder of its own.
driver_for() {
  mkdir -p "$1"
  cc -shared -fPIC "-DVERSION=$1" -o "$1/libcuda.so.1" driver.c
}
driver_for "${older}080"
driver_for "${built}000"
expect 0 "gpu +none found: the driver is for CUDA $older.8, this build needs one for CUDA $built$" \
  env LD_LIBRARY_PATH="$scratch/${older}080" "$tool" doctor
expect 0 'gpu +none found$' env LD_LIBRARY_PATH="$scratch/${built}000" "$tool" doctor
expect 0 'gpu +none found$' env LD_LIBRARY_PATH=/nowhere "$tool" doctor
expect 3 "cannot run here; it needs .*, a driver for CUDA $built$" \
  env LD_LIBRARY_PATH="$scratch/${older}080" "$tool" verify "$golden" --backend cuda
