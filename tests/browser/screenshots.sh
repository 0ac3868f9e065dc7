#!/usr/bin/env bash
# Checks every view and dialog of the panel, and leaves screenshots, light and dark, narrow and wide, in
# target/screenshots.
set -euo pipefail
cd "$(dirname "$0")/../.."
for command in chromium chromedriver; do
    command -v "$command" >/dev/null || { echo "$command is missing (Debian: apt-get install chromium chromium-driver)" >&2; exit 1; }
done
cargo test --quiet --test it -- panel::screenshots
