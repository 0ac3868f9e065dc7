#!/bin/sh
# Installs, upgrades or removes Agent Implement on a machine with systemd. Run it as root.
#
#   install.sh [--sha256 SUM] FILE     FILE is the Debian package, or the program itself
#   install.sh --uninstall             removes the program and keeps settings, credentials and data
#
# FILE must have the checksum in SHA256SUMS beside it, or SUM. The program is installed with the unit in systemd/
# and the files in share/ (manual pages, completions, documents, templates) beside this script. A second run with the
# same file changes nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=/usr/local/bin/agent-implement
unit=/etc/systemd/system/agent-implement.service
drop_in=$unit.d/older-systemd.conf
users=/etc/sysusers.d/agent-implement.conf
share=/usr/local/share
settings=/etc/agent-implement
data=/var/lib/agent-implement

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}
usage() { fail "usage: install.sh [--sha256 SUM] FILE, or install.sh --uninstall"; }

is_packaged() {
    command -v dpkg-query >/dev/null 2>&1 &&
        [ "$(dpkg-query -W -f '${db:Status-Status}' agent-implement 2>/dev/null)" = installed ]
}

check_sum() { # check_sum COPY SUM: verifies the copy of $file against this sum, or against SHA256SUMS
    expected=$2
    if [ -z "$expected" ]; then
        list=$(dirname "$1")/SHA256SUMS
        [ -f "$list" ] || fail "no SHA256SUMS beside $file; pass its checksum with --sha256"
        name=$(basename "$1")
        expected=$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1; exit }' "$list")
        [ -n "$expected" ] || fail "SHA256SUMS has no checksum of $file; pass it with --sha256"
    fi
    found=$(sha256sum "$1" | cut -d' ' -f1)
    [ "$found" = "$expected" ] || fail "wrong checksum of $file: $found, expected $expected"
}

# put MODE FILE TARGET: installs a file; fails if it is already the same.
put() {
    if cmp -s "$2" "$3"; then return 1; fi
    # Called in a condition, where set -e has no effect.
    { install -D -m "$1" "$2" "$3.new" && mv -f "$3.new" "$3"; } || {
        rm -f "$3.new"
        fail "cannot install $3; it was not changed"
    }
}

make_secret() { # make_secret NAME LENGTH: creates a random secret if the file does not exist
    if [ ! -e "$settings/credentials/$1" ]; then
        secret=$(tr -dc 'a-zA-Z0-9' </dev/urandom | head -c "$2")
        (umask 077 && printf '%s\n' "$secret" >"$settings/credentials/$1")
        say "Created $settings/credentials/$1."
    fi
}

installed() { # installed PATH
    say "Installed $1."
    changed=yes
}

install_shared_files() {
    cp -r "$here/share" "$work/share"
    # The folder from which zsh reads completions that are not of a package.
    mv "$work/share/zsh/vendor-completions" "$work/share/zsh/site-functions"
    (cd "$work/share" && find . -type f) >"$work/shared-files"
    count=0
    while read -r path; do
        if put 644 "$work/share/$path" "$share/${path#./}"; then count=$((count + 1)); fi
    done <"$work/shared-files"
    [ "$count" = 0 ] || say "Installed $count files in $share."
}

remove_shared_files() {
    rm -rf "$share/agent-implement" "$share/doc/agent-implement"
    rm -f "$share/man/man1/agent-implement.1" "$share"/man/man1/agent-implement-*.1 \
        "$share/bash-completion/completions/agent-implement" "$share/zsh/site-functions/_agent-implement" \
        "$share/fish/vendor_completions.d/agent-implement.fish"
}

install_program() {
    ! is_packaged || fail "the Debian package is installed; upgrade it with a newer Debian package"
    for needed in systemd/agent-implement.service share/agent-implement/next-steps.txt; do
        [ -f "$here/$needed" ] || fail "$needed is missing beside this script; unpack the whole archive"
    done
    [ -e "$unit" ] || first=yes
    changed=no
    sed "s|^ExecStart=/usr/bin/|ExecStart=/usr/local/bin/|" "$here/systemd/agent-implement.service" >"$work/unit"
    if put 755 "$1" "$program"; then installed "$program"; fi
    if put 644 "$work/unit" "$unit"; then installed "$unit"; fi
    if put 644 "$here/systemd/agent-implement.sysusers" "$users"; then installed "$users"; fi
    if [ "$(systemctl --version | awk 'NR == 1 { print $2 }')" -lt 252 ]; then
        if put 644 "$here/systemd/older-systemd.conf" "$drop_in"; then installed "$drop_in"; fi
    else
        rm -f "$drop_in"
    fi
    install_shared_files
    systemd-sysusers "$users"
    install -d -m 755 "$settings"
    install -d -m 700 -o root -g root "$settings/credentials"
    if [ ! -e "$settings/agent-implement.env" ]; then
        install -m 640 "$here/systemd/agent-implement.env" "$settings/agent-implement.env"
    fi
    # Only on the first install, so that secrets removed by an operator stay removed.
    if [ "$first" = yes ]; then
        make_secret ADMIN_ACCESS_CODE 20
        make_secret RUNNER_TOKEN_SECRET 64
        make_secret SCM_WEBHOOK_SECRET 40
    fi
    systemctl daemon-reload
    systemctl enable --quiet agent-implement
    if [ "$changed" = yes ]; then
        systemctl restart agent-implement
    else
        systemctl start agent-implement
        say "Nothing changed."
    fi
}

uninstall() {
    if is_packaged; then
        DEBIAN_FRONTEND=noninteractive apt-get remove -y agent-implement
    else
        if [ -e "$unit" ]; then systemctl disable --now --quiet agent-implement; fi
        rm -f "$program" "$unit" "$drop_in" "$users"
        remove_shared_files
        systemctl daemon-reload
    fi
    say "Kept $settings (settings and credentials), $data (data) and the user agent-implement."
}

sum=
file=
remove=no
first=no
while [ $# -gt 0 ]; do
    case $1 in
    --sha256) [ $# -ge 2 ] || usage && sum=$2 && shift 2 ;;
    --uninstall) remove=yes && shift ;;
    -*) usage ;;
    *) [ -z "$file" ] || usage && file=$1 && shift ;;
    esac
done
[ "$(id -u)" = 0 ] || fail "this script must be run as root"
command -v systemctl >/dev/null 2>&1 || fail "systemd is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$remove" = yes ]; then
    uninstall
    exit
fi
[ -f "$file" ] || usage
# Works on a copy, so that FILE cannot change between check and installation.
copy=$work/$(basename "$file")
cp "$file" "$copy"
if [ -z "$sum" ] && [ -f "$(dirname "$file")/SHA256SUMS" ]; then cp "$(dirname "$file")/SHA256SUMS" "$work/"; fi
check_sum "$copy" "$sum"
case $file in
*.deb)
    chmod 755 "$work"
    DEBIAN_FRONTEND=noninteractive apt-get install -y "$copy"
    ;;
*) install_program "$copy" ;;
esac
if ! systemctl is-active --quiet agent-implement; then
    fail "the service is not running; see: journalctl -u agent-implement"
fi
if [ "$first" = yes ]; then cat "$here/share/agent-implement/next-steps.txt"; else say "Agent Implement is running."; fi
