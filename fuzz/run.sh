#!/usr/bin/env bash
# Fuzzes the parsers of untrusted bytes: `fuzz/run.sh [RUNS [TARGET...]]`. Default: ten million inputs per
# target, all targets, two in parallel. Inputs that reach new code are stored in target/fuzzing/corpus, the
# results in target/fuzzing/figures.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-10000000}
shift || true
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(sed -n '/^\[\[bin\]\]/{n;s/^name = "\(.*\)"$/\1/p}' fuzz/Cargo.toml)

export PATH="$PWD/target/fuzz-tools/bin:$PATH"
command -v cargo-fuzz >/dev/null || cargo install --locked --root target/fuzz-tools cargo-fuzz@0.13.2
# The fuzzer's instrumentation needs unstable compiler flags; this enables them on a stable compiler.
export RUSTC_BOOTSTRAP=1
# No sanitizer: there is no unsafe code to check, and runs are several times faster without one.
# FUZZ_BUILD=--no-trace-compares is faster still, but the fuzzer then does not learn from comparisons.
# shellcheck disable=SC2086 # options are words
cargo fuzz build --sanitizer none ${FUZZ_BUILD-} --target-dir target/fuzzing/build

host=$(rustc -vV | sed -n 's/^host: //p')
fuzz() { # fuzz TARGET RUNS
    local log="target/fuzzing/$1.log" found="target/fuzzing/corpus/$1" began=$SECONDS
    mkdir -p "$found" target/fuzzing/artifacts
    if ! "target/fuzzing/build/$HOST/release/$1" "$found" "fuzz/corpus/$1" -runs="$2" -max_len=4096 -timeout=10 \
        -rss_limit_mb=1024 -artifact_prefix="target/fuzzing/artifacts/$1-" -print_final_stats=1 >"$log" 2>&1; then
        echo "$1: FAILED, see $log" && return 1
    fi
    printf '%s: %s runs in %s s, %s, %s inputs kept, %s MB at most\n' "$1" \
        "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$((SECONDS - began))" \
        "$(grep -oE 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -n 1)" \
        "$(find "$found" -type f | wc -l)" "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")"
}
export -f fuzz
export HOST=$host
printf '%s\n' "${targets[@]}" | xargs -P 2 -I '{}' bash -c "fuzz {} $runs" | tee target/fuzzing/figures
