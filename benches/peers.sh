#!/usr/bin/env bash
# Installs the programs that the benchmarks measure beside the service, at pinned versions, into
# target/bench-tools. What cannot be had is said, and its rows are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/bench-tools
mkdir -p "$tools/bin" "$tools/node"

lacks() { echo "$*" >&2; }

# Debian's `webhook`, taken out of its package: installing it would start a service.
webhook() {
    [ -x "$tools/bin/webhook" ] && return
    command -v apt-get >/dev/null || { lacks "no apt-get here: webhook is not measured"; return 0; }
    local from
    from=$(mktemp -d)
    if (cd "$from" && apt-get download -qq webhook && dpkg-deb -x webhook_*.deb out); then
        install -m 755 "$from/out/usr/bin/webhook" "$tools/bin/webhook"
    else
        lacks "webhook cannot be downloaded: it is not measured"
    fi
    rm -rf "$from"
}

# Probot, and SQLite for Node, which is compiled where no binary of it can be had.
node_peers() {
    command -v npm >/dev/null || { lacks "no npm here: the programs of Node are not measured"; return 0; }
    cp benches/peers/*.mjs "$tools/node/"
    cmp -s benches/peers/package.json "$tools/node/installed.json" && return
    cp benches/peers/package.json "$tools/node/package.json"
    if timeout 1800 npm install --prefix "$tools/node" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
        cp benches/peers/package.json "$tools/node/installed.json"
    else
        rm -f "$tools/node/"*.mjs
        lacks "no npm registry here: the programs of Node are not measured"
    fi
}

# The guard's peer is built from source; without Cargo there is nothing to measure anyway.
ripsecrets() {
    [ -x "$tools/bin/ripsecrets" ] && return
    cargo install ripsecrets --version 0.1.11 --locked --root "$tools" ||
        lacks "ripsecrets cannot be built: it is not measured"
}

webhook
node_peers
ripsecrets
