#!/usr/bin/env bash
# Installs the browser in which pages are tested: Debian's and Ubuntu's Chromium, with a font. One that is there is left
# as it is.
set -euo pipefail

for program in chromium chromium-browser google-chrome; do
    if command -v "$program" >/dev/null; then
        echo "$program: present"
        exit 0
    fi
done
if ! command -v apt-get >/dev/null; then
    echo 'This is not Debian or Ubuntu: install Chromium in your system'\''s way and put it on the PATH.' >&2
    echo 'Without it, tests of pages are skipped.' >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo 'Installing needs root. As root, run: apt-get install chromium fonts-dejavu-core' >&2
        exit 1
    fi
    as_root=(sudo)
fi
"${as_root[@]}" apt-get update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends chromium fonts-dejavu-core
