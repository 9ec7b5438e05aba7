#!/usr/bin/env bash
# Runs a compiler and keeps the CPU seconds that it took in OBJECT.seconds, for scripts/compile_budget.py.
#   cmake/compile_seconds.sh OBJECT COMMAND...
object=$1
shift
mkdir -p "$(dirname "$object")"
TIMEFORMAT=%U
{ time "$@" 2>&3; } 3>&2 2>"$object.seconds"
