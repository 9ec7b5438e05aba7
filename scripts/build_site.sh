#!/usr/bin/env bash
# Makes the pages a static site, with search, a dark mode and a folder for each version, and checks every link
# of it; in a browser too, where there is one.
#   scripts/build_site.sh [FOLDER] [COMMIT]     (default: build/site, the pages as they lie here)
# The site is in FOLDER/site, the pages in FOLDER/site/VERSION: other versions that are there stay, and are
# listed by the selector on every page. With COMMIT the pages are that commit's.
# Packages from PyPI, in virtual environments of their own: mkdocs-material and, with a browser, playwright, pinned.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/site}
export NO_MKDOCS_2_WARNING=1
tree=.
if [ $# -ge 2 ]; then
  tree=$(mktemp -d)
  trap 'rm -rf "$tree"' EXIT
  git archive "$2" docs README.md CMakeLists.txt | tar -x -C "$tree"
fi
python3 scripts/site.py prepare "$folder" "$tree"
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/pip" install -q mkdocs==1.6.1 mkdocs-material==9.7.6
"$folder/env/bin/mkdocs" build -q --strict -f "$folder/mkdocs.yml"
python3 scripts/site.py versions "$folder/site"
python3 scripts/site.py check "$folder/site"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "the browser's checks are skipped: no chromium here (apt-get install chromium)"
  exit 0
fi
"$folder/env/bin/pip" install -q playwright==1.65.2
"$folder/env/bin/python" scripts/check_site.py "$folder/site" --browser "$browser" --pictures "$folder/pictures"
