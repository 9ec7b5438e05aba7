#!/usr/bin/env bash
# Measures that libsluice exports exactly the names of symbols.txt: nm on the built library against
# the committed list, both ways.   check_symbols.sh LIBRARY LIST
set -euo pipefail
diff <(nm -D --defined-only "$1" | awk '{print $3}' | sort) "$2" ||
  { echo "exported symbols differ from $2 (left: library, right: list)"; exit 1; }
echo "$(wc -l <"$2") exported symbols, as listed"
