#!/usr/bin/env bash
# Measures that the conformance kit is whole and that its answers hold: the short rungs are written in
# two dtypes, and judged by the tool and, where there is NumPy, by the checker that shares nothing with it.
# Usage: conformance_kit.sh TOOL SOURCE_DIR. SPDX-License-Identifier: Apache-2.0
set -euo pipefail
tool=$1 source=$2
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for dtype in f32 bf16; do
  kit=$folder/$dtype
  python3 "$source/conformance/make_kit.py" --tool "$tool" "$kit" --quick --dim 32 --dtype $dtype
  cases=$(grep -c '"case"' "$kit/index.json")
  "$tool" verify --dtype $dtype "$kit"/*.safetensors | tail -n 1 | grep -E "^$cases cases, [0-9]+ tensors, 0 failed"
done
for python in python3 /usr/bin/python3 none; do
  if "$python" -c 'import numpy' 2>/dev/null; then break; fi
done
[ "$python" = none ] && exit 0
"$python" "$source/conformance/check.py" "$folder/f32/prefill.safetensors" | tail -n 1 | grep ' 0 tensors failed'
"$tool" run -o "$folder/results" "$folder/f32/decode.safetensors" >"$folder/log"
check() { "$python" "$source/conformance/check.py" "$folder/f32/$1.safetensors" --against "$folder/results"; }
check decode | tail -n 1 | grep ' 0 tensors failed'
if check layer >"$folder/log"; then
  echo "results of another file passed"
  exit 1
fi
grep -q 'FAIL: missing' "$folder/log"
