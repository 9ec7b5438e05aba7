#!/usr/bin/env bash
# Makes the pages a static site, with search and a dark mode, and checks every link of it.
#   scripts/build_site.sh [FOLDER]        (default: build/site; the site is in FOLDER/site)
# Packages from PyPI, in a virtual environment of its own: mkdocs-material, pinned.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/site}
export NO_MKDOCS_2_WARNING=1
python3 scripts/site.py prepare "$folder"
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/pip" install -q mkdocs==1.6.1 mkdocs-material==9.7.6
"$folder/env/bin/mkdocs" build -q --strict -f "$folder/mkdocs.yml"
python3 scripts/site.py check "$folder/site"
