#!/usr/bin/env bash
# Tests the package on a clean Debian with systemd as the first process: install, run, crash, hang, wrong settings,
# upgrade, remove, reinstall, purge. Then tests the archive on a machine without the package.
#
#   tests/package.sh [--profile PROFILE] [--release RELEASE]
#
# Needs root. Installs debootstrap and systemd-container if they are missing (Debian). Prints one line per check
# and stops at the first failure. PROFILE is a Cargo profile, default dev: this tests the packaging, not the code.
# RELEASE is a release of Debian, default bookworm.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=dev
release=bookworm
while [ $# -gt 0 ]; do
    case $1 in
    --profile) profile=$2 && shift 2 ;;
    --release) release=$2 && shift 2 ;;
    *) echo "usage: tests/package.sh [--profile PROFILE] [--release RELEASE]" >&2 && exit 2 ;;
    esac
done
cached_root=${AGENT_IMPLEMENT_PACKAGE_ROOT:-/var/tmp/agent-implement-package-root-$release}
work=$(mktemp -d /var/tmp/agent-implement-package.XXXXXX)
root=$work/root
container=
first_process=

say() { printf '\n== %s\n' "$*"; }
pass() { printf 'ok: %s\n' "$*"; }
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    [ -z "$first_process" ] || inside journalctl --no-pager -n 30 -u agent-implement >&2 || true
    exit 1
}
# check TEXT COMMAND...: the command must succeed. The output of the previous check is in $work/before.
check() {
    local text=$1 && shift
    [ ! -f "$work/output" ] || mv "$work/output" "$work/before"
    "$@" >"$work/output" 2>&1 || { cat "$work/output" >&2 && fail "$text"; }
    pass "$text"
}
# equal TEXT FOUND EXPECTED
equal() {
    [ "$2" = "$3" ] || fail "$1: found '$2', expected '$3'"
    pass "$1"
}
# eventually TEXT COMMAND...: the command must succeed within a minute.
eventually() {
    local text=$1 && shift
    for _ in $(seq 240); do
        if "$@" >"$work/output" 2>&1; then pass "$text" && return; fi
        sleep 0.25
    done
    cat "$work/output" >&2
    fail "$text"
}
not() { ! "$@"; }

inside() { nsenter --target "$first_process" --mount --uts --ipc --net --pid --cgroup --root --wdns=/ -- "$@"; }
boot() {
    systemd-nspawn --quiet --register=no --keep-unit --private-network --directory "$root" --boot \
        >"$work/boot.log" 2>&1 &
    container=$!
    for _ in $(seq 240); do
        first_process=$(tr -d ' ' <"/proc/$container/task/$container/children") || true
        if [ -n "$first_process" ] && inside systemctl is-system-running 2>/dev/null | grep -Eq 'running|degraded'; then
            return
        fi
        kill -0 "$container" 2>/dev/null || break
        sleep 0.25
    done
    cat "$work/boot.log" >&2
    first_process=
    fail "systemd starts in a container (this machine may not permit it)"
}
clean_up() {
    if [ -n "$container" ]; then
        # The signal shuts the container down.
        kill "$container" 2>/dev/null || true
        for _ in $(seq 120); do
            kill -0 "$container" 2>/dev/null || break
            sleep 0.25
        done
        kill -9 "$container" 2>/dev/null || true
        wait "$container" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT

main_pid() { inside systemctl show -p MainPID --value agent-implement; }
state() { inside systemctl show -p "$1" --value agent-implement; }
is_active() { [ "$(state ActiveState)" = active ]; }
has_other_pid() { is_active && [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ]; }
logged() { inside journalctl --no-pager -u agent-implement | grep -F "$1" >/dev/null; }
# The credential must be passed as a file, not as a variable.
has_clean_environment() {
    inside grep -qa CREDENTIALS_DIRECTORY= "/proc/$(main_pid)/environ" &&
        ! inside grep -qaF "$(code)" "/proc/$(main_pid)/environ"
}
reports_status() { state StatusText | grep -E '^(Started|[0-9]+ runs under way)' >/dev/null; }
health() { inside curl -sf --max-time 5 http://127.0.0.1:8080/; }
code() { inside cat /etc/agent-implement/credentials/ADMIN_ACCESS_CODE; }
sign_in() {
    code | sed 's/.*/{"code":"&"}/' |
        inside curl -sf --max-time 5 http://127.0.0.1:8080/api/auth --data-binary @- | sed 's/.*"token":"\([^"]*\)".*/\1/'
}
teams() { # the keys of the mappings
    inside curl -sf --max-time 5 http://127.0.0.1:8080/api/mappings -H "Authorization: Bearer $(sign_in)" |
        grep -o '"teamKey":"[^"]*"'
}
has_team() { teams | grep -F '"teamKey":"ENG"' >/dev/null; }
map_team() {
    inside curl -sf --max-time 5 http://127.0.0.1:8080/api/mappings -H "Authorization: Bearer $(sign_in)" \
        -d '{"teamKey":"ENG","owner":"acme","repo":"shop","defaultBranch":"main","ticketingProvider":"A"}'
}
reaches_engine() {
    inside curl -sf --max-time 20 http://127.0.0.1:8080/api/admin/config-status -H "Authorization: Bearer $(sign_in)" |
        tr '{' '\n' | grep -F '"local-containers"' | tee "$work/engine" | grep -F '"ok"' >/dev/null ||
        { cat "$work/engine" && return 1; }
}
# apt ARGUMENTS...: all dependencies are installed, so it needs no network without what is only recommended.
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -y --no-install-recommends "$@"; }

[ "$(id -u)" = 0 ] || { echo "tests/package.sh must be run as root" >&2 && exit 2; }
for command in debootstrap:debootstrap systemd-nspawn:systemd-container lintian:lintian; do
    command -v "${command%:*}" >/dev/null 2>&1 ||
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${command#*:}"; }
done

say "building (profile $profile)"
packaging/build.sh --profile "$profile" --deb-version 99.0-1 >"$work/built"
cp "$(head -n 1 "$work/built")" "$work/newer.deb"
rm -rf target/packages
packaging/build.sh --profile "$profile" >"$work/built"
cp "$(head -n 1 "$work/built")" "$work/package.deb"
archive=$(grep -F .tar.gz "$work/built")
check "SHA256SUMS is correct" sh -c 'cd target/packages && sha256sum --check --quiet SHA256SUMS'
check "lintian reports nothing" lintian --allow-root --fail-on error,warning "$work/package.deb"

say "a clean Debian"
if [ ! -d "$cached_root" ]; then
    rm -rf "$cached_root.new"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,curl "$release" "$cached_root.new" \
        >"$work/debootstrap.log" || { tail -n 5 "$work/debootstrap.log" >&2 && fail "debootstrap creates a clean Debian"; }
    mv "$cached_root.new" "$cached_root"
fi
cp -a "$cached_root" "$root"
cp "$work/package.deb" "$work/newer.deb" "$root/root/"
tar -C "$root/root" -xzf "$archive"
boot
equal "systemd is the first process" "$(inside cat /proc/1/comm)" systemd

say "install"
check "apt installs the package" apt install /root/package.deb
cp "$work/output" "$work/installed"
eventually "the service is ready" is_active
check "GET / reports its health" health
equal "the service runs as its own user" "$(inside stat -c %U "/proc/$(main_pid)")" agent-implement
equal "the service is enabled at boot" "$(inside systemctl is-enabled agent-implement)" enabled
check "systemctl status shows its status" reports_status
equal "only the service can read its data folder" "$(inside stat -c '%U %a' /var/lib/agent-implement)" "agent-implement 700"
equal "only root can read the credentials" \
    "$(inside stat -c '%U %a' /etc/agent-implement/credentials /etc/agent-implement/credentials/ADMIN_ACCESS_CODE | tr '\n' ' ')" \
    "root 700 root 600 "
check "the created access code is valid" sign_in
check "its environment contains no secret" has_clean_environment
check "the unit is valid" inside systemd-analyze verify --man=no /usr/lib/systemd/system/agent-implement.service
if [ "$release" != bullseye ]; then # its systemd-analyze has no threshold
    check "its exposure level is at most 2.0" inside systemd-analyze security --no-pager --threshold=20 agent-implement.service
    printf '       (%s)\n' "$(tail -n 1 "$work/output" | sed 's/^[^A-Za-z]*//')"
fi
check "a project can be mapped" map_team
check "the manual page is installed" inside test -s /usr/share/man/man1/agent-implement.1.gz
check "the installation names the next steps" grep -F 'cat /etc/agent-implement/credentials/ADMIN_ACCESS_CODE' "$work/installed"

say "failures"
before=$(main_pid)
inside sh -c "kill -KILL $before"
eventually "systemd restarts the killed service" has_other_pid "$before"
eventually "no data is lost" has_team
inside mkdir -p /etc/systemd/system/agent-implement.service.d
printf '[Service]\nWatchdogSec=3\n' | inside tee /etc/systemd/system/agent-implement.service.d/quick.conf >/dev/null
inside systemctl daemon-reload
inside systemctl restart agent-implement
# Microseconds since the boot of the machine; four seconds are longer than the watchdog waits.
started=$(state ExecMainStartTimestampMonotonic)
notified() { [ "$(state WatchdogTimestampMonotonic)" -gt $((started + 4000000)) ]; }
eventually "the service notifies its watchdog" notified
before=$(main_pid)
equal "systemd does not restart it" "$(state NRestarts)" 0
inside sh -c "kill -STOP $before"
eventually "systemd restarts the hung service" has_other_pid "$before"
check "because of the watchdog" logged "Watchdog timeout"
inside rm -f /etc/systemd/system/agent-implement.service.d/{quick,local-containers}.conf
inside systemctl daemon-reload
inside sh -c 'echo PORT=none >> /etc/agent-implement/agent-implement.env'
check "a wrong setting fails at once" not inside systemctl restart agent-implement
equal "systemd does not restart it" "$(state ActiveState) $(state ExecMainStatus)" "failed 78"
check "the log names the wrong setting" logged "PORT must be a port number"
inside sed -i 's/^PORT=none$/POLL_INTERVAL_MS=45000/' /etc/agent-implement/agent-implement.env
check "the service runs with the corrected setting" inside systemctl restart agent-implement
before=$(main_pid)
check "SIGTERM stops the service" inside systemctl stop agent-implement
equal "with exit code 0" "$(state Result) $(state ExecMainStatus)" "success 0"
check "the service starts again" inside systemctl start agent-implement

say "local containers"
# Fake engine without containers, behind a socket for the group docker only.
inside groupadd --system docker
printf '%s\n' '[Socket]' 'ListenStream=/run/docker.sock' SocketGroup=docker SocketMode=0660 Accept=yes |
    inside tee /etc/systemd/system/engine.socket >/dev/null
printf '%s\n' '[Service]' 'ExecStart=/bin/sh /root/engine.sh' StandardInput=socket |
    inside tee /etc/systemd/system/engine@.service >/dev/null
printf '%s\n' 'read -r request' 'printf "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"' |
    inside tee /root/engine.sh >/dev/null
inside systemctl daemon-reload
inside systemctl start engine.socket
check "restart without the drop-in" inside systemctl restart agent-implement
check "the engine is not reachable" not reaches_engine
grep -q 'ermission denied' "$work/output" || fail "because permission is denied: $(cat "$work/output")"
inside install -D -m 644 /usr/share/doc/agent-implement/examples/local-containers.conf \
    /etc/systemd/system/agent-implement.service.d/local-containers.conf
inside systemctl daemon-reload
check "restart with the drop-in" inside systemctl restart agent-implement
check "the engine is reachable" reaches_engine
inside rm -f /etc/systemd/system/agent-implement.service.d/{quick,local-containers}.conf
inside systemctl stop engine.socket
inside systemctl daemon-reload
inside systemctl restart agent-implement

say "operator commands"
env_file=/etc/agent-implement/agent-implement.env
operator_command() { inside agent-implement "$@" --env-file "$env_file"; }
has_valid_values() { { operator_command doctor || true; } | grep -q 'every value is valid'; }
reports_unknown() { operator_command why ENG-42 || [ $? = 4 ]; }
check "doctor reads settings and credentials" has_valid_values
check "why connects to the running service" reports_unknown
check "backup works while the service runs" operator_command backup /root/copy
check "the audit log is intact" operator_command audit verify

say "upgrade"
before=$(main_pid)
access_code=$(code)
check "apt upgrades the running service" apt install /root/newer.deb
# shellcheck disable=SC2016 # dpkg-query fills it in
equal "the newer version is installed" "$(inside dpkg-query -W -f '${Version}' agent-implement)" 99.0-1
eventually "the service was restarted" has_other_pid "$before"
eventually "its data is kept" has_team
check "the settings of the operator are kept" inside grep -qx POLL_INTERVAL_MS=45000 /etc/agent-implement/agent-implement.env
equal "the access code is the same" "$(code)" "$access_code"

say "remove and reinstall"
check "apt removes the package" apt remove agent-implement
check "the program is gone" inside test ! -e /usr/bin/agent-implement
check "no process of it runs" not inside sh -c 'grep -qs agent-implement /proc/[0-9]*/comm'
check "data and credentials are kept" inside test -s /var/lib/agent-implement/agent-implement.redb \
    -a -s /etc/agent-implement/credentials/ADMIN_ACCESS_CODE -a -s /etc/agent-implement/agent-implement.env
check "apt installs the package again" apt install /root/newer.deb
eventually "with the same data" has_team
equal "and the same access code" "$(code)" "$access_code"

say "purge"
check "apt purges the package" apt purge agent-implement
check "the output names the deleted data" grep -q 'deleting the data (store, key of the stored secrets, logs) in /var/lib/agent-implement' "$work/before"
check "no files are left" inside test ! -e /var/lib/agent-implement -a ! -e /etc/agent-implement

say "the archive, without the package"
folder=/root/$(basename "$archive" .tar.gz)
check "a changed file is rejected" not inside sh -c "
    cp -r $folder /root/bad && echo x >>/root/bad/agent-implement && /root/bad/install.sh /root/bad/agent-implement"
check "because of its checksum" grep -q 'wrong checksum of .*bad/agent-implement' "$work/before"
check "and nothing is installed" inside test ! -e /usr/local/bin/agent-implement -a ! -e /etc/agent-implement
check "mount a disk that is too small" inside mount -t tmpfs -o size=64k none /usr/local/bin
check "the installation fails" not inside "$folder/install.sh" "$folder/agent-implement"
check "the error names the file" grep -q 'cannot install /usr/local/bin/agent-implement' "$work/before"
check "and no partial file is left" not inside sh -c 'ls -A /usr/local/bin | grep agent-implement'
inside umount /usr/local/bin
check "install.sh installs the program" inside "$folder/install.sh" "$folder/agent-implement"
check "install.sh names the next steps" grep -F 'cat /etc/agent-implement/credentials/ADMIN_ACCESS_CODE' "$work/before"
check "the service runs" health
check "manual page, completions and documents are installed" inside test -s /usr/local/share/man/man1/agent-implement.1 \
    -a -s /usr/local/share/zsh/site-functions/_agent-implement -a -s /usr/local/share/doc/agent-implement/README.md
check "a project can be mapped" map_team
before=$(main_pid)
access_code=$(code)
check "install.sh runs a second time" inside "$folder/install.sh" "$folder/agent-implement"
check "and changes nothing" grep -qx 'Nothing changed.' "$work/before"
equal "and does not restart the service" "$(main_pid)" "$before"
check "install.sh --uninstall removes the program" inside "$folder/install.sh" --uninstall
check "the output names what is kept" grep -q 'Kept /etc/agent-implement (settings and credentials), /var/lib/agent-implement (data)' "$work/before"
check "the program is gone" inside test ! -e /usr/local/bin/agent-implement -a ! -e /etc/systemd/system/agent-implement.service
check "and no shared file is left" not inside sh -c 'find /usr/local/share -type f | grep agent-implement'
check "install.sh installs the program again" inside "$folder/install.sh" "$folder/agent-implement"
eventually "with the same data" has_team
equal "and the same access code" "$(code)" "$access_code"
check "install.sh --uninstall removes it again" inside "$folder/install.sh" --uninstall
rm -rf "${root:?}/root/bad"
sum=$(sha256sum "$work/package.deb" | cut -d' ' -f1)
check "install.sh installs the Debian package with --sha256" inside "$folder/install.sh" --sha256 "$sum" /root/package.deb
eventually "the data is still there" has_team

say "all checks passed"
