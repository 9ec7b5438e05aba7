#!/usr/bin/env bash
# Tests the Rust bindings against a build of the library: declarations, formatter's silence, tests.
#   scripts/test_rust.sh [BUILD_DIR]        (default: build/release); exits 77 where there is no cargo
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}")
python3 bindings/rust/generate.py --check
command -v cargo >/dev/null || { echo "no cargo here: the Rust bindings are not tested"; exit 77; }
export SLUICE_LIB_DIR=$build/src CARGO_TARGET_DIR=$build/rust RUSTFLAGS="-D warnings"
cargo test --quiet --offline --manifest-path bindings/rust/Cargo.toml
