#!/usr/bin/env bash
# Builds the release files in target/packages: the Debian package, an archive for other distributions, and their
# checksums.
#
#   packaging/build.sh [--profile PROFILE] [--deb-version VERSION]
#
# PROFILE is a Cargo profile, default dist. VERSION is the version of the Debian package, default the
# version of Cargo.toml.
#
# The program is linked against the C library of Debian 11 (packaging/sysroot.sh), so it runs on every later system.
# The build fails if the program needs a newer C library, or if that of the profile dist has more than 20.0 MB.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo_deb_version=3.8.0
newest_glibc=2.31
# See docs/proofs.md#size.
size_limit=20000000
profile=dist
deb_options=()
while [ $# -gt 0 ]; do
    case $1 in
    --profile) profile=$2 && shift 2 ;;
    --deb-version) deb_options=(--deb-version "$2") && shift 2 ;;
    *) echo "usage: packaging/build.sh [--profile PROFILE] [--deb-version VERSION]" >&2 && exit 2 ;;
    esac
done
fail() {
    echo "build.sh: $*" >&2
    exit 1
}
tools=target/package-tools
target=$(rustc --print host-tuple)
case $profile in
dev) folder=debug ;;
*) folder=$profile ;;
esac
program=${CARGO_TARGET_DIR:-target}/$target/$folder/agent-implement
share=target/package/share
packages=target/packages

if [ "$("$tools/bin/cargo-deb" --version 2>/dev/null)" != "$cargo_deb_version" ]; then
    cargo install --quiet --locked --root "$tools" --version "$cargo_deb_version" cargo-deb
fi

# With --target, programs that only run during the build are linked against this system's library.
compiler=$(packaging/sysroot.sh target/sysroot)
variable=${target//-/_}

# Panics name the source files of dependencies, without the folder in which this machine keeps them. What cannot be
# fetched is named by the build.
cargo fetch --locked --quiet --target "$target" || true
flags=() features=()
for sources in "${CARGO_HOME:-${HOME-}/.cargo}"/registry/src/*/; do
    flags+=("--remap-path-prefix=$sources=")
done
# A small program: one copy of equal functions and of equal sequences of instructions, frame pointers, which make unwind
# tables and code shorter, and no generator of the OpenAPI document. A sequence becomes a function only if that saves
# more than its entry in the unwind tables, which the compiler does not count.
if [ "$profile" = dist ]; then
    # Only here does Rust link with lld, which can fold functions.
    [ "$target" != x86_64-unknown-linux-gnu ] || flags+=("-Clink-arg=-Wl,--icf=all")
    flags+=(-Cforce-frame-pointers=yes -Cllvm-args=-enable-machine-outliner=always -Cllvm-args=-machine-outliner-reruns=2
        -Cllvm-args=-outliner-benefit-threshold=32)
    features=(--no-default-features --features demo)
fi
env "CC_$variable=$compiler" "CARGO_TARGET_${variable^^}_LINKER=$compiler" "CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && printf %s "${flags[*]}")" \
    cargo build --locked --quiet --profile "$profile" --target "$target" "${features[@]}" --bin agent-implement

version=$("$program" --version | cut -d' ' -f2)
needed_glibc=$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
[ "$(printf '%s\n' "$needed_glibc" "GLIBC_$newest_glibc" | sort -V | tail -n 1)" = "GLIBC_$newest_glibc" ] ||
    fail "the program needs $needed_glibc, which is newer than $newest_glibc: $program"

# Manual pages: one per command if the program can write them, else one page made from its help.
manual() { # manual FOLDER
    "$program" man --dir "$1" >/dev/null 2>&1 && return
    "$program" man >"$1/agent-implement.1" 2>/dev/null && return
    {
        printf '.TH AGENT-IMPLEMENT 1 "" "agent-implement %s"\n' "$version"
        printf '.SH NAME\nagent-implement \\- turn labelled tickets into reviewed pull requests\n'
        printf '.SH SYNOPSIS\n.B agent-implement\n.I COMMAND\n.SH COMMANDS\n.nf\n'
        "$program" --help | verbatim
        printf '.fi\n.SH SETTINGS OF serve\n.nf\n'
        "$program" serve --help | verbatim
        printf '.fi\n'
    } >"$1/agent-implement.1"
}
verbatim() { sed 's/\\/\\e/g; s/-/\\-/g; s/^\./\\\&./'; }
completions() { # completions SHELL FILE; skipped for a version without the command
    if "$program" completions "$1" >target/package/completions 2>/dev/null; then
        install -D -m 644 target/package/completions "$share/$2"
    fi
}
rm -rf target/package && mkdir -p "$share/man/man1" "$packages"
stripped=target/package/agent-implement
strip -o "$stripped" "$program"
size=$(stat -c %s "$stripped")
[ "$profile" != dist ] || [ "$size" -le "$size_limit" ] ||
    fail "the program has $size bytes, more than the limit of $size_limit: $stripped"
manual "$share/man/man1"
completions bash bash-completion/completions/agent-implement
completions zsh zsh/vendor-completions/_agent-implement
completions fish fish/vendor_completions.d/agent-implement.fish
rm -f target/package/completions

# Documents with the pictures that they show, templates of workflows, dashboard and alert rules, manifests.
documents=$share/doc/agent-implement
mkdir -p "$documents/docs" "$share/agent-implement"
cp README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md "$documents/"
cp docs/*.md docs/*.png docs/*.svg "$documents/docs/"
cp -r templates packaging/prometheus packaging/kubernetes packaging/next-steps.txt \
    packaging/systemd/older-systemd.conf "$share/agent-implement/"
chmod -R u=rwX,go=rX "$share"

# Test builds need not be small.
[ "$profile" = dist ] || deb_options+=(--fast)
deb=$("$tools/bin/cargo-deb" --quiet --no-build --strip --no-dbgsym --profile "$profile" --target "$target" --output "$packages/" "${deb_options[@]}")

# Archive for other distributions with systemd: the program, its unit and the install script.
name=agent-implement-$version-$(uname -m)
tree=target/package/$name
mkdir -p "$tree"
install -m 755 "$stripped" "$tree/agent-implement"
install -m 755 packaging/install.sh "$tree/install.sh"
cp -r packaging/systemd packaging/caddy "$share" LICENSE "$tree/"
(cd "$tree" && sha256sum agent-implement >SHA256SUMS)
tar -C target/package --owner=0 --group=0 --sort=name -czf "$packages/$name.tar.gz" "$name"
(cd "$packages" && sha256sum -- *.deb *.tar.gz >SHA256SUMS)
printf '%s\n' "$deb" "$packages/$name.tar.gz" "$packages/SHA256SUMS"
