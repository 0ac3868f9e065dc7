#!/usr/bin/env bash
# Makes a folder with the C library of Debian 11 (glibc 2.31) and a C compiler that builds against it. A program
# linked by that compiler runs on Debian 11, Ubuntu 20.04 and everything newer.
#
#   packaging/sysroot.sh FOLDER     prints the path of the compiler
#
# The packages of packaging/sysroot.sha256 are downloaded from a mirror of Debian (DEBIAN_MIRROR, then the usual
# ones) and checked. Needs gcc as Debian and Ubuntu configure it, curl and dpkg-deb.
set -euo pipefail
list=$(cd "$(dirname "$0")" && pwd)/sysroot.sha256

[ $# = 1 ] || { echo "usage: packaging/sysroot.sh FOLDER" >&2 && exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
fail() {
    echo "sysroot.sh: $*" >&2
    exit 1
}

mirrors=("${DEBIAN_MIRROR:-http://deb.debian.org/debian}" http://archive.debian.org/debian)
fetch() { # fetch PATH FILE
    local mirror
    for mirror in "${mirrors[@]}"; do
        curl -sSf --retry 2 --max-time 120 -o "$2" "$mirror/$1" && return
    done
    fail "cannot download $1 from ${mirrors[*]}; set DEBIAN_MIRROR to a mirror that has Debian 11"
}

make_root() { # make_root ARCHITECTURE: unpacks the packages of this architecture into $folder/root
    local sum path package packages
    packages=$(grep -F "_$1.deb" "$list") || fail "no packages for $1 in $list; build on one of its architectures"
    rm -rf "$folder/root" "$folder/new"
    mkdir -p "$folder/new" "$folder/packages"
    while read -r sum path; do
        package=$folder/packages/$(basename "$path")
        [ -f "$package" ] || fetch "$path" "$package"
        if ! sha256sum --check --status <<<"$sum  $package"; then
            rm -f "$package"
            fail "wrong checksum of $path; it was deleted, run this script again"
        fi
        dpkg-deb -x "$package" "$folder/new"
    done <<<"$packages"
    # Absolute links would lead out of the folder.
    find "$folder/new" -type l -lname '/*' | while read -r link; do
        ln -sfnr "$folder/new$(readlink "$link")" "$link"
    done
    mv "$folder/new" "$folder/root"
    cp "$list" "$folder/made-of"
}

cmp -s "$list" "$folder/made-of" || make_root "$(dpkg --print-architecture)" >&2
# -B and -L because gcc looks beside its own files, which are the system's, before it looks into the sysroot.
libraries=$(gcc -print-multiarch)
{
    echo '#!/bin/sh'
    printf 'exec gcc --sysroot="%s" -B"%s" -L"%s" "$@"\n' \
        "$folder/root" "$folder/root/usr/lib/$libraries/" "$folder/root/lib/$libraries"
} >"$folder/cc"
chmod 755 "$folder/cc"
echo "$folder/cc"
