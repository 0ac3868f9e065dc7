#!/usr/bin/env bash
# Measures the way from an empty Debian to an open pull request: installs the package in a new root, answers the
# questions of `agent-implement init`, starts the service and waits for the pull request. The vendors, the container
# engine included, are the fakes of `demo --vendors-only` on this machine.
#
#   tests/first_pull_request.sh [--system github|linear|jira] [--package FILE]
#
# Needs root, debootstrap and a package of packaging/build.sh: by default the one in target/packages. Prints the number
# of answers and credentials and the time of each step; the root is made before the clock starts. Fails after more than
# 10 answers or 5 minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

system=github
package=
while [ $# -gt 0 ]; do
    case $1 in
    --system) system=$2 && shift 2 ;;
    --package) package=$2 && shift 2 ;;
    *) echo "usage: tests/first_pull_request.sh [--system github|linear|jira] [--package FILE]" >&2 && exit 2 ;;
    esac
done
[ -n "$package" ] || package=$(find target/packages -name 'agent-implement_*.deb' | sort | tail -n 1)
[ -f "$package" ] || { echo "no package; run packaging/build.sh first" >&2 && exit 2; }

max_answers=10
max_seconds=300
work=$(mktemp -d /var/tmp/agent-implement-first.XXXXXX)
root=$work/root
vendors=
service=
cleanup() {
    for process in $service $vendors; do kill "$process" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for folder in proc dev; do umount -l "$root/$folder" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
say() { printf '%6.1f s  %s\n' "$(echo "$EPOCHREALTIME - $started" | bc)" "$*"; }
fail() { echo "FAILED: $*" >&2 && exit 1; }

cached=${AGENT_IMPLEMENT_FIRST_ROOT:-/var/tmp/agent-implement-first-root}
if [ ! -d "$cached" ]; then
    rm -rf "$cached.new"
    debootstrap --variant=minbase bookworm "$cached.new" >"$work/debootstrap.log" ||
        { tail -n 5 "$work/debootstrap.log" >&2 && fail "debootstrap cannot make a Debian"; }
    mv "$cached.new" "$cached"
fi
cp -a "$cached" "$root"
for folder in proc dev; do mount --bind "/$folder" "$root/$folder"; done
cp "$package" "$root/tmp/agent-implement.deb"
cp /etc/resolv.conf "$root/etc/resolv.conf"

# The fakes execute runs with a program of this machine: the one of the package.
dpkg-deb -x "$package" "$work/program"
program=$work/program/usr/bin/agent-implement
"$program" demo --vendors-only --system "$system" --data-dir "$work/vendors" >"$work/vendors.env" &
vendors=$!
for _ in $(seq 100); do
    if grep -q '^ANTHROPIC_API_KEY=' "$work/vendors.env"; then break; fi
    sleep 0.1
done
value() { sed -n "s/^$1=//p" "$work/vendors.env"; }

# Addresses that stand for the public ones, and the data folder as the fake engine sees it.
addresses=(GITHUB_API_URL LINEAR_API_URL DOCKER_HOST LOCAL_RUNNER_IMAGE)
environment=(PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root "DATA_DIR_ON_HOST=$root/root/agent-implement/data")
for name in "${addresses[@]}"; do environment+=("$name=$(value "$name")"); done
inside() { chroot "$root" /usr/bin/env -i "${environment[@]}" "$@"; }

# The answers, in the order of the questions.
credentials=2
case $system in
github) answers=(1 1 "$(value GITHUB_TOKEN)" 1) ;;
linear) answers=(1 2 "$(value GITHUB_TOKEN)" 1 "$(value LINEAR_API_KEY)" DEMO) credentials=3 ;;
jira)
    answers=(1 3 "$(value GITHUB_TOKEN)" 1 "$(value JIRA_SITE_URL)" "$(value JIRA_EMAIL)" "$(value JIRA_API_TOKEN)" DEMO y)
    credentials=3
    ;;
esac
answers+=("$(value ANTHROPIC_API_KEY)")

started=$EPOCHREALTIME
inside sh -c 'apt-get -qq update && apt-get -qq install --yes --no-install-recommends /tmp/agent-implement.deb' \
    >"$work/install.log" 2>&1 || { tail -n 20 "$work/install.log" >&2 && fail "the package cannot be installed"; }
say "installed the package"
printf '%s\n' "${answers[@]}" |
    inside sh -c 'cd /root && agent-implement init --env-file agent-implement/agent-implement.env' >"$work/init.log" 2>&1 ||
    { cat "$work/init.log" >&2 && fail "init failed"; }
say "set up the service with ${#answers[@]} answers and $credentials credentials"
chroot "$root" /usr/bin/env -i "${environment[@]}" sh -c \
    'cd /root && exec agent-implement serve --env-file agent-implement/agent-implement.env --poll-interval-ms 1000' \
    >"$work/service.log" 2>&1 &
service=$!
say "started the service"
if [ "$system" = jira ]; then
    # The fields are new, so somebody sets them on a ticket.
    api=$(value JIRA_SITE_URL)/rest/api/3
    login=$(value JIRA_EMAIL):$(value JIRA_API_TOKEN)
    field() { curl -sf -u "$login" "$api/field" | jq -r --arg name "$1" '.[] | select(.name == $name) | .id'; }
    curl -sf -u "$login" -X PUT -H 'Content-Type: application/json' "$api/issue/DEMO-1" --data "$(jq -n \
        --arg repo "$(field 'Agent-Implement Repo')" --arg status "$(field 'Agent-Implement Status')" \
        '{fields: {($repo): {value: "greeter"}, ($status): {value: "Ready"}}}')"
    say "flagged a ticket"
fi
pulls() { curl -sf -H "Authorization: Bearer $(value GITHUB_TOKEN)" "$(value GITHUB_API_URL)/repos/demo/greeter/pulls"; }
until title=$(pulls | jq -er '.[0].title'); do
    [ "$(echo "$EPOCHREALTIME - $started > $max_seconds" | bc)" = 0 ] ||
        { tail -n 20 "$work/service.log" >&2 && fail "no pull request after $max_seconds seconds"; }
    sleep 0.5
done
say "open pull request: $title"
[ "${#answers[@]}" -le "$max_answers" ] || fail "more than $max_answers answers"
