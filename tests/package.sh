#!/usr/bin/env bash
# Proves the package on a clean Debian with systemd as its first process: install, run, crash, hang, wrong
# settings, upgrade, remove, reinstall, purge; and the same archive on a machine without the package.
#
#   tests/package.sh [--profile PROFILE]
#
# Needs root, and installs debootstrap and systemd-container where they are missing (Debian). One line a fact;
# the first that does not hold ends it. PROFILE is cargo's, dev unless it is named: what is proved here is the
# packaging, and the code in it is the same.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=dev
[ "${1:-}" != --profile ] || profile=$2
keep=${AGENT_IMPLEMENT_PACKAGE_ROOT:-/var/tmp/agent-implement-package-root}
work=$(mktemp -d /var/tmp/agent-implement-package.XXXXXX)
root=$work/root
container=
first_process=

say() { printf '\n== %s\n' "$*"; }
holds() { printf 'holds: %s\n' "$*"; }
fails() {
    printf 'FAILS: %s\n' "$*" >&2
    [ -z "$first_process" ] || inside journalctl --no-pager -n 30 -u agent-implement >&2 || true
    exit 1
}
# fact TEXT COMMAND...: the command succeeds. What the one before it said is in $work/before.
fact() {
    local text=$1 && shift
    [ ! -f "$work/said" ] || mv "$work/said" "$work/before"
    "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2 && fails "$text"; }
    holds "$text"
}
# equal TEXT FOUND EXPECTED
equal() {
    [ "$2" = "$3" ] || fails "$1: it is '$2', not '$3'"
    holds "$1"
}
# until TEXT COMMAND...: the command succeeds within a minute.
until_holds() {
    local text=$1 && shift
    for _ in $(seq 240); do
        if "$@" >"$work/said" 2>&1; then holds "$text" && return; fi
        sleep 0.25
    done
    cat "$work/said" >&2
    fails "$text"
}
lacks() { ! "$@"; }

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
    fails "systemd starts in a container (this machine may not let it)"
}
clean_up() {
    if [ -n "$container" ]; then
        # Told so, it shuts the machine down.
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
# The credential is handed over as a file, not as a variable.
has_clean_environment() {
    inside grep -qa CREDENTIALS_DIRECTORY= "/proc/$(main_pid)/environ" &&
        ! inside grep -qaF "$(code)" "/proc/$(main_pid)/environ"
}
tells_state() { state StatusText | grep -E '^(Started|[0-9]+ under way)' >/dev/null; }
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
# apt WORDS...: nothing it needs is missing, so no network is asked.
apt() { inside env DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Use-Pty=0 -y "$@"; }

[ "$(id -u)" = 0 ] || { echo "tests/package.sh must be run as root" >&2 && exit 2; }
for command in debootstrap:debootstrap systemd-nspawn:systemd-container lintian:lintian; do
    command -v "${command%:*}" >/dev/null 2>&1 ||
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${command#*:}"; }
done

say "building (profile $profile)"
packaging/build.sh --profile "$profile" --deb-version 99.0-1 >"$work/built"
cp "$(head -n 1 "$work/built")" "$work/newer.deb"
rm -rf target/dist
packaging/build.sh --profile "$profile" >"$work/built"
cp "$(head -n 1 "$work/built")" "$work/package.deb"
archive=$(grep -F .tar.gz "$work/built")
fact "SHA256SUMS is right" sh -c 'cd target/dist && sha256sum --check --quiet SHA256SUMS'
fact "lintian finds nothing" lintian --allow-root --fail-on error,warning "$work/package.deb"

say "a clean Debian"
if [ ! -d "$keep" ]; then
    rm -rf "$keep.new"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,curl bookworm "$keep.new" \
        >"$work/debootstrap.log" || { tail -n 5 "$work/debootstrap.log" >&2 && fails "a clean Debian can be had"; }
    mv "$keep.new" "$keep"
fi
cp -a "$keep" "$root"
cp "$work/package.deb" "$work/newer.deb" "$root/root/"
tar -C "$root/root" -xzf "$archive"
boot
equal "systemd is the first process" "$(inside cat /proc/1/comm)" systemd

say "install"
fact "apt installs the package" apt install /root/package.deb
until_holds "the service is ready" is_active
fact "its health is told" health
equal "it runs as its own user" "$(inside stat -c %U "/proc/$(main_pid)")" agent-implement
equal "it starts with the machine" "$(inside systemctl is-enabled agent-implement)" enabled
fact "systemctl status tells what it does" tells_state
equal "its folder is its own" "$(inside stat -c '%U %a' /var/lib/agent-implement)" "agent-implement 700"
equal "credentials are root's alone" \
    "$(inside stat -c '%U %a' /etc/agent-implement/credentials /etc/agent-implement/credentials/ADMIN_ACCESS_CODE | tr '\n' ' ')" \
    "root 700 root 600 "
fact "the access code that was made signs in" sign_in
fact "its environment holds no secret" has_clean_environment
fact "the unit is sound" inside systemd-analyze verify --man=no /usr/lib/systemd/system/agent-implement.service
fact "its exposure is 2.0 at most" inside systemd-analyze security --no-pager --threshold=20 agent-implement.service
printf '       (%s)\n' "$(tail -n 1 "$work/said" | sed 's/^[^A-Za-z]*//')"
fact "a project can be mapped" map_team
fact "the manual page is there" inside test -s /usr/share/man/man1/agent-implement.1.gz

say "a bad day"
before=$(main_pid)
inside sh -c "kill -KILL $before"
until_holds "killed, it is started again" has_other_pid "$before"
until_holds "and has lost nothing" has_team
inside mkdir -p /etc/systemd/system/agent-implement.service.d
printf '[Service]\nWatchdogSec=3\n' | inside tee /etc/systemd/system/agent-implement.service.d/quick.conf >/dev/null
inside systemctl daemon-reload
inside systemctl restart agent-implement
sleep 5
before=$(main_pid)
equal "it lives longer than its watchdog allows without food" "$(state NRestarts)" 0
inside sh -c "kill -STOP $before"
until_holds "hung, it is started again" has_other_pid "$before"
fact "by the watchdog" logged "Watchdog timeout"
inside rm -r /etc/systemd/system/agent-implement.service.d
inside systemctl daemon-reload
inside sh -c 'echo PORT=none >> /etc/agent-implement/agent-implement.env'
fact "with settings that are wrong it says so at once" lacks inside systemctl restart agent-implement
equal "and is not tried again and again" "$(state ActiveState) $(state ExecMainStatus)" "failed 78"
fact "the log names what is wrong" logged "PORT must be a port number"
inside sed -i 's/^PORT=none$/POLL_INTERVAL_MS=45000/' /etc/agent-implement/agent-implement.env
fact "set right, it runs" inside systemctl restart agent-implement
before=$(main_pid)
fact "SIGTERM ends it well" inside systemctl stop agent-implement
equal "with exit code 0" "$(state Result) $(state ExecMainStatus)" "success 0"
fact "and it starts" inside systemctl start agent-implement

say "containers of this machine"
# A stand-in engine that tells of no containers, behind a socket that only the group docker may use.
inside groupadd --system docker
printf '%s\n' '[Socket]' 'ListenStream=/run/docker.sock' SocketGroup=docker SocketMode=0660 Accept=yes |
    inside tee /etc/systemd/system/engine.socket >/dev/null
printf '%s\n' '[Service]' 'ExecStart=/bin/sh /root/engine.sh' StandardInput=socket |
    inside tee /etc/systemd/system/engine@.service >/dev/null
printf '%s\n' 'read -r request' 'printf "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n[]"' |
    inside tee /root/engine.sh >/dev/null
inside systemctl daemon-reload
inside systemctl start engine.socket
fact "without the drop-in" inside systemctl restart agent-implement
fact "the engine is out of reach" lacks reaches_engine
grep -q 'ermission denied' "$work/said" || fails "because permission is denied: $(cat "$work/said")"
inside install -D -m 644 /usr/share/doc/agent-implement/examples/local-containers.conf \
    /etc/systemd/system/agent-implement.service.d/local-containers.conf
inside systemctl daemon-reload
fact "with it" inside systemctl restart agent-implement
fact "the engine is reached" reaches_engine
inside rm -r /etc/systemd/system/agent-implement.service.d
inside systemctl stop engine.socket
inside systemctl daemon-reload
inside systemctl restart agent-implement

say "commands of the operator"
env_file=/etc/agent-implement/agent-implement.env
ours() { inside agent-implement "$@" --env-file "$env_file"; }
every_value_is_good() { { ours doctor || true; } | grep -q 'every value can be used'; }
unknown() { ours why ENG-42 || [ $? = 4 ]; }
fact "doctor reads settings and credentials" every_value_is_good
fact "why asks the service that runs" unknown
fact "a backup is taken meanwhile" ours backup /root/copy
fact "the audit is whole" ours audit verify

say "upgrade"
before=$(main_pid)
word=$(code)
fact "apt upgrades it while it runs" apt install /root/newer.deb
# shellcheck disable=SC2016 # dpkg-query fills it in
equal "the newer version is installed" "$(inside dpkg-query -W -f '${Version}' agent-implement)" 99.0-1
until_holds "the service was restarted" has_other_pid "$before"
until_holds "its data is there" has_team
fact "the operator's settings are there" inside grep -qx POLL_INTERVAL_MS=45000 /etc/agent-implement/agent-implement.env
equal "the access code is the same" "$(code)" "$word"

say "remove and reinstall"
fact "apt removes it" apt remove agent-implement
fact "the program is gone" inside test ! -e /usr/bin/agent-implement
fact "nothing of it runs" lacks inside sh -c 'grep -qs agent-implement /proc/[0-9]*/comm'
fact "data and credentials are kept" inside test -s /var/lib/agent-implement/agent-implement.redb \
    -a -s /etc/agent-implement/credentials/ADMIN_ACCESS_CODE -a -s /etc/agent-implement/agent-implement.env
fact "apt installs it again" apt install /root/newer.deb
until_holds "with the same data" has_team
equal "and the same access code" "$(code)" "$word"

say "purge"
fact "apt purges it" apt purge agent-implement
fact "it says what it deletes" grep -q 'deleting its data (store, key of the stored secrets, logs) in /var/lib/agent-implement' "$work/before"
fact "nothing is left" inside test ! -e /var/lib/agent-implement -a ! -e /etc/agent-implement

say "the archive, without the package"
folder=/root/$(basename "$archive" .tar.gz)
fact "a file that was tampered with is refused" lacks inside sh -c "
    cp -r $folder /root/bad && echo x >>/root/bad/agent-implement && /root/bad/install.sh /root/bad/agent-implement"
fact "for its checksum" grep -q 'bad/agent-implement is not what it should be' "$work/before"
fact "and leaves no trace" inside test ! -e /usr/local/bin/agent-implement -a ! -e /etc/agent-implement
fact "on a disk that is too small for it" inside mount -t tmpfs -o size=64k none /usr/local/bin
fact "the installation fails" lacks inside "$folder/install.sh" "$folder/agent-implement"
fact "says what could not be installed" grep -q '/usr/local/bin/agent-implement could not be installed' "$work/before"
fact "and leaves no part of it" lacks inside sh -c 'ls -A /usr/local/bin | grep agent-implement'
inside umount /usr/local/bin
fact "install.sh installs it" inside "$folder/install.sh" "$folder/agent-implement"
fact "it runs" health
fact "a project can be mapped" map_team
before=$(main_pid)
word=$(code)
fact "install.sh again" inside "$folder/install.sh" "$folder/agent-implement"
fact "changes nothing" grep -qx 'nothing has changed' "$work/before"
equal "and lets the service run" "$(main_pid)" "$before"
fact "it takes the program away" inside "$folder/install.sh" --uninstall
fact "and says what it keeps" grep -q 'kept: /etc/agent-implement (settings and credentials), /var/lib/agent-implement (data)' "$work/before"
fact "the program is gone" inside test ! -e /usr/local/bin/agent-implement -a ! -e /etc/systemd/system/agent-implement.service
fact "install.sh installs it again" inside "$folder/install.sh" "$folder/agent-implement"
until_holds "with the same data" has_team
equal "and the same access code" "$(code)" "$word"
fact "it goes at last" inside "$folder/install.sh" --uninstall
rm -rf "${root:?}/root/bad"
sum=$(sha256sum "$work/package.deb" | cut -d' ' -f1)
fact "install.sh takes the Debian package by its checksum" inside "$folder/install.sh" --sha256 "$sum" /root/package.deb
until_holds "over the data that was kept" has_team

say "all of it holds"
