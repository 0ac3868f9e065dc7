#!/usr/bin/env bash
# Installs the programs that the benchmarks compare with, at pinned versions, into target/bench-tools. Prints
# which ones cannot be installed; the benchmarks skip their rows.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/bench-tools
mkdir -p "$tools/bin" "$tools/node"

warn() { echo "$*" >&2; }

# Debian's `webhook`, extracted from its package because installing the package would start a service.
webhook() {
    [ -x "$tools/bin/webhook" ] && return
    command -v apt-get >/dev/null || { warn "apt-get not found: webhook will not be measured"; return 0; }
    local from
    from=$(mktemp -d)
    if (cd "$from" && apt-get download -qq webhook && dpkg-deb -x webhook_*.deb out); then
        install -m 755 "$from/out/usr/bin/webhook" "$tools/bin/webhook"
    else
        warn "cannot download webhook: it will not be measured"
    fi
    rm -rf "$from"
}

# Probot, and SQLite for Node, which is compiled if no binary is available.
node_peers() {
    command -v npm >/dev/null || { warn "npm not found: the Node programs will not be measured"; return 0; }
    cp benches/peers/*.mjs "$tools/node/"
    cmp -s benches/peers/package.json "$tools/node/installed.json" && return
    cp benches/peers/package.json "$tools/node/package.json"
    if timeout 1800 npm install --prefix "$tools/node" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
        cp benches/peers/package.json "$tools/node/installed.json"
    else
        rm -f "$tools/node/"*.mjs
        warn "cannot install the npm packages: the Node programs will not be measured"
    fi
}

# Built from source. Cargo is always available, because the benchmarks need it.
ripsecrets() {
    [ -x "$tools/bin/ripsecrets" ] && return
    cargo install ripsecrets --version 0.1.11 --locked --root "$tools" ||
        warn "cannot build ripsecrets: it will not be measured"
}

webhook
node_peers
ripsecrets
