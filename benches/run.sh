#!/usr/bin/env bash
# Runs all benchmarks one after the other and writes their output to target/bench.txt. Options that all
# benchmarks accept may follow: bash benches/run.sh --dir /var/lib/somewhere
set -euo pipefail
cd "$(dirname "$0")/.."
report=target/bench.txt

bash benches/peers.sh
for bench in ingest poll waits sweep overhead lists start guard; do
    cargo bench --quiet --no-run --bench "$bench"
done
{
    date -u +'%F %H:%M UTC'
    git log -1 --format='commit %h %s'
    uname -srm
    rustc --version
    grep -m1 'model name' /proc/cpuinfo || true
    echo "$(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg)"
    df --output=source,fstype,avail -h target | tail -1
} | tee "$report"
for bench in ingest poll waits sweep overhead lists start; do
    printf '\n== %s\n' "$bench" | tee -a "$report"
    cargo bench --quiet --bench "$bench" -- "$@" 2>&1 | tee -a "$report"
done
# No options: this benchmark has no store.
printf '\n== guard\n' | tee -a "$report"
cargo bench --quiet --bench guard 2>&1 | tee -a "$report"
