#!/usr/bin/env bash
# Takes pictures of every panel, light and dark, narrow and wide, into target/screenshots.
set -euo pipefail
cd "$(dirname "$0")/../.."
for command in chromium chromedriver; do
    command -v "$command" >/dev/null || { echo "this needs $command (Debian: apt-get install chromium chromium-driver)" >&2; exit 1; }
done
cargo test --quiet --test it -- --ignored --nocapture panel::screenshots
