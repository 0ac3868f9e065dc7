#!/bin/sh
# Installs, upgrades or removes Agent Implement on a machine with systemd. Run it as root.
#
#   install.sh [--sha256 SUM] FILE     FILE is the Debian package, or the program itself
#   install.sh --uninstall             takes the program away and keeps settings, credentials and data
#
# FILE must have the checksum that SHA256SUMS beside it names, or SUM. The program is installed with the unit
# in systemd/ beside this script. Running it again with the same file changes nothing.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
program=/usr/local/bin/agent-implement
unit=/etc/systemd/system/agent-implement.service
users=/etc/sysusers.d/agent-implement.conf
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

check_sum() { # check_sum COPY SUM: the copy of $file has this sum, or the one that the list beside it names
    expected=$2
    if [ -z "$expected" ]; then
        list=$(dirname "$1")/SHA256SUMS
        [ -f "$list" ] || fail "there is no SHA256SUMS beside $file; name its checksum with --sha256"
        name=$(basename "$1")
        expected=$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1; exit }' "$list")
        [ -n "$expected" ] || fail "SHA256SUMS beside $file does not name it"
    fi
    found=$(sha256sum "$1" | cut -d' ' -f1)
    [ "$found" = "$expected" ] || fail "$file is not what it should be: its checksum is $found, not $expected"
}

# put MODE FILE PLACE: answers whether that changed anything.
put() {
    if cmp -s "$2" "$3"; then return 1; fi
    # It is called in a condition, where set -e does nothing.
    { install -D -m "$1" "$2" "$3.new" && mv -f "$3.new" "$3"; } || {
        rm -f "$3.new"
        fail "$3 could not be installed; it is as it was"
    }
    say "installed $3"
}

make_secret() { # make_secret NAME LENGTH: a random word, unless there is one
    if [ ! -e "$settings/credentials/$1" ]; then
        word=$(tr -dc 'a-zA-Z0-9' </dev/urandom | head -c "$2")
        (umask 077 && printf '%s\n' "$word" >"$settings/credentials/$1")
        say "made $settings/credentials/$1"
    fi
}

install_program() {
    ! is_packaged || fail "the Debian package is installed; upgrade it with a newer package"
    [ -f "$here/systemd/agent-implement.service" ] || fail "systemd/agent-implement.service is not beside this script"
    first=no
    [ -e "$unit" ] || first=yes
    changed=no
    sed "s|^ExecStart=/usr/bin/|ExecStart=/usr/local/bin/|" "$here/systemd/agent-implement.service" >"$work/unit"
    if put 755 "$1" "$program"; then changed=yes; fi
    if put 644 "$work/unit" "$unit"; then changed=yes; fi
    if put 644 "$here/systemd/agent-implement.sysusers" "$users"; then changed=yes; fi
    systemd-sysusers "$users"
    install -d -m 755 "$settings"
    install -d -m 700 -o root -g root "$settings/credentials"
    if [ ! -e "$settings/agent-implement.env" ]; then
        install -m 640 "$here/systemd/agent-implement.env" "$settings/agent-implement.env"
    fi
    # On a first install only: what an operator has taken away is not made again.
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
        say "nothing has changed"
    fi
}

uninstall() {
    if is_packaged; then
        DEBIAN_FRONTEND=noninteractive apt-get remove -y agent-implement
    else
        if [ -e "$unit" ]; then systemctl disable --now --quiet agent-implement; fi
        rm -f "$program" "$unit" "$users"
        systemctl daemon-reload
    fi
    say "kept: $settings (settings and credentials), $data (data), and the user agent-implement"
}

sum=
file=
remove=no
while [ $# -gt 0 ]; do
    case $1 in
    --sha256) [ $# -ge 2 ] || usage && sum=$2 && shift 2 ;;
    --uninstall) remove=yes && shift ;;
    -*) usage ;;
    *) [ -z "$file" ] || usage && file=$1 && shift ;;
    esac
done
[ "$(id -u)" = 0 ] || fail "it must be run as root"
command -v systemctl >/dev/null 2>&1 || fail "there is no systemd here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$remove" = yes ]; then
    uninstall
    exit
fi
[ -f "$file" ] || usage
# What was checked is what is installed, whoever else may write to FILE.
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
    fail "the service does not run; see: journalctl -u agent-implement"
fi
say "Agent Implement runs. The access code of its panel: cat $settings/credentials/ADMIN_ACCESS_CODE"
