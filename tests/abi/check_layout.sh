#!/usr/bin/env bash
# Measures that the binary interface is the committed one: abidiff of functions, structs and
# enumerators against a dump; only additions that the contract allows pass (additions.suppr).
#   check_layout.sh LIBRARY DUMP            compares; exits 77 where abidiff is missing (abigail-tools)
#   check_layout.sh --renew LIBRARY DUMP    writes the dump: at a release, or after a change that is meant
# LIBRARY is libsluice_abi.so: the C interface compiled with debug information (tests/abi/CMakeLists.txt).
set -euo pipefail
renew=
if [ "$1" = --renew ]; then renew=1; shift; fi
library=$1 committed=$2
here=$(cd "$(dirname "$0")" && pwd)
command -v abidiff >/dev/null || { echo "abidiff is not installed (abigail-tools)"; exit 77; }
dump=$committed
[ -n "$renew" ] || dump=$library.abi
# Public types alone, also those that no function names (enumerations); no path of this machine.
abidw --headers-dir "$here/../../include/sluice" --drop-private-types --load-all-types \
  --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --out-file "$dump" "$library"
if [ -z "$renew" ]; then
  abidiff --suppressions "$here/additions.suppr" --no-added-syms --non-reachable-types \
    "$committed" "$dump" || { echo "if it is meant: $0 --renew $library $committed"; exit 1; }
fi
echo "$(grep -c '<elf-symbol ' "$dump") functions and $(grep -c '<enum-decl' "$dump") enumerations, as in" \
  "$(basename "$committed")"
