#!/usr/bin/env bash
# Makes a root folder for each of the oldest systems that the program runs on, Debian 11 and Ubuntu 20.04, with
# certificates. A folder that is there is kept.
#
#   tests/old_systems.sh FOLDER
#
# Needs root, debootstrap, curl and dpkg-deb. DEBIAN_MIRROR and UBUNTU_MIRROR name other mirrors.
set -euo pipefail

[ $# = 1 ] || { echo "usage: tests/old_systems.sh FOLDER" >&2 && exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
ubuntu_mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}

make_root() { # make_root RELEASE MIRROR KEYRING
    local new=$folder/$1.new
    rm -rf "$new"
    if debootstrap --variant=minbase --keyring="$3" --include=ca-certificates "$1" "$new" "$2" >"$folder/$1.log" 2>&1; then
        mv "$new" "$folder/$1"
    else
        tail -n 3 "$folder/$1.log" >&2
        rm -rf "$new"
        return 1
    fi
}

# Debian has no current package of Ubuntu's keys. This one never changes: it is the release's own.
ubuntu_keyring() {
    local package=$folder/ubuntu-keyring.deb
    local sum=7564f3f76fbc9f165ecc30e2cf2695d38b284e234bffa0c6441ff37f8a7aebd7
    curl -sSf --retry 2 --max-time 60 -o "$package" \
        "$ubuntu_mirror/pool/main/u/ubuntu-keyring/ubuntu-keyring_2020.02.11.2_all.deb" >&2
    sha256sum --check --status <<<"$sum  $package" || { echo "old_systems.sh: wrong checksum of $package" >&2 && return 1; }
    dpkg-deb -x "$package" "$folder/keyring"
    echo "$folder/keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"
}

debian_keys=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -d "$folder/bullseye" ]; then
    # Debian moves old releases to its archive.
    make_root bullseye "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" "$debian_keys" ||
        make_root bullseye http://archive.debian.org/debian "$debian_keys"
fi
if [ ! -d "$folder/focal" ]; then
    keys=$(ubuntu_keyring)
    make_root focal "$ubuntu_mirror" "$keys"
fi
