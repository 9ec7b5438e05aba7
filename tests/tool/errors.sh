#!/usr/bin/env bash
# Measures what the tool says and returns when it is misused, and that its help has examples.
# How: each mistake is made once; the message must name it and the exit status must be 2.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

expect 0 'Examples:' "$tool" --help
for command in doctor info run verify make-case bench "bench cpu" "bench prefill"; do
  expect 0 'Example' "$tool" $command --help
done
expect 0 '^[0-9]+\.[0-9]+\.[0-9]+$' "$tool" --version
expect 0 'cpu +yes' "$tool" info
expect 0 'chunk_forward +cpu\.' "$tool" info
expect 2 'Usage: sluice' "$tool"
expect 0 'cpu, float32 +PASS +[0-9]+ of [0-9]+ right' "$tool" doctor
expect 0 'Everything is right\.' env NO_COLOR=1 "$tool" doctor
expect 0 'SLUICE_DEBUG=1' env SLUICE_DEBUG=1 "$tool" doctor
expect 2 'bogus' "$tool" bogus
expect 2 'FILE is required' "$tool" run
expect 2 'no-such-file: cannot be opened: No such file' "$tool" run no-such-file
expect 2 'cannot be opened' "$tool" verify --against no-such-file "$golden"
expect 2 "'gpu' is none of auto, cpu, cuda, reference" "$tool" run --backend gpu "$golden"
expect 2 "'f8' is none of bf16, f16, f32" "$tool" verify --dtype f8 "$golden"
expect 2 'bthd' "$tool" verify --layout tbhd "$golden"
expect 2 '--bogus' "$tool" run --bogus "$golden"

printf 'not a tensor file at all' >text
expect 2 'is this a safetensors file' "$tool" verify text
head -c 5000 "$golden" >short
expect 2 'short: header length' "$tool" verify short
head -c 500000 "$golden" >cut
expect 2 "cut: tensor '.*data_offsets .*expected end <=" "$tool" verify cut
printf '\x08\0\0\0\0\0\0\0{}      ' >plain
expect 2 'is this a case file' "$tool" verify plain
expect 2 "no model 'gpt' " "$tool" bench cpu --model gpt
expect 2 "'gpu' is none of" "$tool" bench --backend gpu

# Nothing is wider than the terminal says that it is, but the names of kernels and limits of a row.
for command in info doctor "bench --dim 16 --tokens 64"; do
  wide=$(COLUMNS=80 "$tool" $command | awk 'length > 80' | wc -l)
  [ "$wide" -eq 0 ] || { echo "FAILED: $wide lines of $command are wider than 80"; exit 1; }
done
