#!/usr/bin/env bash
# Measures that a built library or program is hardened as cmake/hardening.cmake says: readelf and
# objdump on the file, since a flag that is passed may be dropped on the way.
#   check_hardening.sh FILE...
set -euo pipefail
failed=0
for file in "$@"; do
  fail() { echo "$(basename "$file"): $1"; failed=1; }
  segments=$(readelf -lW "$file") dynamic=$(readelf -dW "$file") symbols=$(readelf -sW --dyn-syms "$file")
  grep -q GNU_RELRO <<<"$segments" || fail "no segment GNU_RELRO (-z relro)"
  grep -qE 'BIND_NOW|Flags:.* NOW' <<<"$dynamic" || fail "symbols are bound late (-z now)"
  grep -qE 'GNU_STACK.* RW ' <<<"$segments" || fail "the stack is executable (-z noexecstack)"
  if grep -qE 'LOAD.* RWE ' <<<"$segments"; then fail "a segment can be written and executed"; fi
  if grep -q TEXTREL <<<"$dynamic"; then fail "code is relocated (not position-independent)"; fi
  grep -q ' DYN ' < <(readelf -hW "$file") || fail "not position-independent (type DYN)"
  grep -q '__stack_chk_fail' <<<"$symbols" || fail "no stack protector (-fstack-protector-strong)"
  grep -qE '__[a-z]+_chk@' <<<"$symbols" || fail "no fortified function (-D_FORTIFY_SOURCE)"
  # With libstdc++ inside, the function has no name left, but still its message.
  grep -q '__glibcxx_assert_fail' <<<"$symbols" || grep -qaF "Assertion '%s' failed" "$file" || fail "no assertions of libstdc++ (_GLIBCXX_ASSERTIONS)"
  if [ "$(uname -m)" = x86_64 ] &&
    awk '$8 == "sluice_version" && $7 != "UND" {found = 1} END {exit !found}' <<<"$symbols"; then
    objdump -d --disassemble=sluice_version "$file" | grep -q endbr64 ||
      fail "functions do not begin with endbr64 (-fcf-protection)"
  fi
done
[ "$failed" -eq 0 ] && echo "hardened: $#" files
exit "$failed"
