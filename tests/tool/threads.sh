#!/usr/bin/env bash
# Measures that the number of threads follows the CPUs that a process may use, and SLUICE_NUM_THREADS
# before that. Usage: threads.sh TOOL.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
tool=$1
unset SLUICE_NUM_THREADS
threads() { "$@" "$tool" info | sed -n 's/^cpu[.]threads: //p'; }
expect() { [ "$1" = "$2" ] || { echo "$3: $1 threads, expected $2"; exit 1; }; }
first=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')
expect "$(threads taskset -c "$first")" 1 "one CPU"
expect "$(threads taskset -c "$first" env SLUICE_NUM_THREADS=3)" 3 "one CPU, SLUICE_NUM_THREADS=3"
