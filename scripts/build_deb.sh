#!/usr/bin/env bash
# Makes a Debian package of a finished build, and checks what it holds and needs.
#   scripts/build_deb.sh [BUILD_DIR] [FOLDER]        (default: build/release, dist)
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
build=${1:-build/release}
mkdir -p "${2:-dist}"
folder=$(realpath "${2:-dist}")
install_packages dpkg-dev
rm -f "$folder"/libsluice_*.deb
(cd "$build" && cpack -G DEB -B "$folder" >"$folder/deb.log") || { tail -20 "$folder/deb.log"; exit 1; }
rm -rf "$folder/_CPack_Packages" "$folder/deb.log"
package=$(ls "$folder"/libsluice_*.deb)
content=$(dpkg-deb -c "$package")
for wanted in bin/sluice lib/.*libsluice.so.0 include/sluice/sluice.h sluiceConfig.cmake sluice.pc; do
  grep -q "usr/.*$wanted" <<<"$content" || { echo "$package lacks $wanted"; exit 1; }
done
dpkg-deb -f "$package" Package Version Architecture Depends
size=$(stat -c %s "$package")
echo "$(basename "$package"): $((size / 1000000)).$((size / 100000 % 10)) MB"
