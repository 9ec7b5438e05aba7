#!/usr/bin/env bash
# Installs the Debian packages named as arguments, those that are missing only, as root or by sudo.
# Sourced by the other scripts: install_packages NAME...
install_packages() {
  local missing=()
  local name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  echo "installing: ${missing[*]}"
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# What building, running and testing needs; docs/dependencies.md has the reason for each.
SLUICE_BUILD_PACKAGES="g++ cmake ninja-build pkg-config libhwy-dev libcli11-dev libfmt-dev
  nlohmann-json3-dev"
SLUICE_TEST_PACKAGES="libgtest-dev python3 python3-numpy"
SLUICE_CHECK_PACKAGES="git clang libclang-rt-14-dev clang-tidy clang-format-19 binutils llvm
  abigail-tools"
