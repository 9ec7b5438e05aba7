# Holds what the tool's tests share: expect STATUS PATTERN COMMAND.. runs a command and compares its exit
# status and what it prints (stdout and stderr) with an extended regular expression.
# SPDX-License-Identifier: Apache-2.0
# Arguments of each test: the tool, the source tree.
tool=$1
source_dir=$2
layers=$source_dir/examples/data
golden=$source_dir/tests/golden/hf_prefill.safetensors
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

expect() {
  local status=$1 pattern=$2 found=0 output
  shift 2
  output=$("$@" 2>&1) || found=$?
  if [ "$found" -ne "$status" ] || ! grep -Eq -- "$pattern" <<<"$output"; then
    printf 'FAILED: %s\nexit status %s, expected %s; expected to print: %s\n%s\n' \
      "$*" "$found" "$status" "$pattern" "$output"
    exit 1
  fi
}
