#!/usr/bin/env bash
# Installs a build and builds the examples against the installed tree alone, as a user would.
#   scripts/check_install.sh BUILD_DIR PREFIX
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
prefix=$(realpath -m "$2")
rm -rf "$prefix" "$prefix-examples"
cmake --install "$build" --prefix "$prefix" >/dev/null
cmake -S examples -B "$prefix-examples" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$prefix-examples"
ctest --test-dir "$prefix-examples" --output-on-failure --no-tests=error
"$prefix/bin/sluice" info >/dev/null
# pkg-config users link with one line.
PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$prefix/lib/$(gcc -print-multiarch)/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
gcc -std=c11 examples/c/decode.c $(pkg-config --cflags --libs sluice) -o "$prefix-examples/decode_pc"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir sluice) "$prefix-examples/decode_pc"
