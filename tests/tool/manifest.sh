#!/usr/bin/env bash
# Measures that the cost formulas of ops/manifest.json are those of this build's tool: records of short
# benchmarks on the host go through tests/lint/check_manifest.py, which compares every row.
# Usage: manifest.sh TOOL SOURCE_DIR.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
tool=$1 source=$2
command -v python3 >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$tool" bench cpu --model 2/6/64x32 --T 70 --B 3 --steps 2 --states hot --state-type fp32,bf16 --no-peers \
  --rounds 1 --seconds 0.001 -o "$folder/cpu.json" >"$folder/log"
"$tool" bench prefill --backend cpu --heads 2/6 --lengths 70,33x2+5 --dtype bf16 --K 64 --V 32 --repeat 1 \
  --rest 0 --warm --no-error --json "$folder/prefill.json" >>"$folder/log"
"$tool" bench parts --backend cpu --heads 2/6 --op update,norm --most-tokens 64 --repeat 1 \
  --json "$folder/parts.json" >>"$folder/log"
"$tool" bench backward --backend cpu --heads 2/6 --lengths 70,33x2+5 --dtype bf16 --K 64 --V 32 --repeat 1 \
  --json "$folder/backward.json" >>"$folder/log"
python3 "$source/tests/lint/check_manifest.py" "$folder"/*.json
# A record that the formulas do not fit must be found.
sed -i 's/"flops": *\([0-9]\)/"flops": 9\1/' "$folder/cpu.json"
if python3 "$source/tests/lint/check_manifest.py" "$folder/cpu.json" >"$folder/log"; then
  echo "a wrong record passed"
  exit 1
fi
grep -q "the manifest says" "$folder/log"
