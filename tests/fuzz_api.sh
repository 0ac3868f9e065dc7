#!/usr/bin/env bash
# Sends valid and invalid requests, generated from the OpenAPI description, to the demo. Every response must conform
# to the description.
#
#   tests/fuzz_api.sh            under a minute, always the same requests; part of tests/run.sh
#   tests/fuzz_api.sh --long     thousands of requests per route, different each time (--seed N repeats a run)
#
# The fuzzer is schemathesis from PyPI, installed in target/fuzz-venv. Requests,
# the log of the demo and its folder are in target/fuzz/ (in CARGO_TARGET_DIR, if that is set).
set -euo pipefail
cd "$(dirname "$0")/.."

length=short seed=1
while [ $# -gt 0 ]; do
    case $1 in
    --long) length=long seed=$RANDOM ;;
    --seed) seed=$2 && shift ;;
    *) echo "usage: tests/fuzz_api.sh [--long] [--seed N]" >&2 && exit 2 ;;
    esac
    shift
done

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/fuzz
# shellcheck source=tests/fuzz/tools.sh
. tests/fuzz/tools.sh
install_api_tools
cargo build --quiet

rm -rf "$out" && mkdir -p "$out"
folder=$out/demo
# Runs start this program again, so a concurrent build must not replace it.
ln "$target/debug/agent-implement" "$out/agent-implement"
"$out/agent-implement" demo --system jira --data-dir "$folder" >"$out/demo.out" 2>"$out/demo.log" &
demo=$!
stop() {
    kill -INT "$demo" 2>/dev/null || true
    wait "$demo" || true
}
trap stop EXIT

saved() { jq -er "$1" "$folder/demo.json" 2>/dev/null; }
request() { curl -sf --max-time 10 "$@"; }
wait_until() { # wait_until WHAT COMMAND...
    local what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 240 ] || ! kill -0 "$demo" 2>/dev/null; then
            echo "timeout: $what" >&2 && cat "$out/demo.log" >&2 && exit 1
        fi
        sleep 0.25
    done
}
wait_until "the demo listens" test -s "$folder/demo.json"
url=http://127.0.0.1:$(saved .port)
wait_until "the service answers" request "$url/"
sign_in() { request "$url/api/auth" -d "{\"code\":\"$(saved .accessCode)\"}" | jq -er .token; }
FUZZ_ADMIN_TOKEN=$(sign_in)
export FUZZ_ADMIN_TOKEN
log() { request "$url/api/log" -H "Authorization: Bearer $FUZZ_ADMIN_TOKEN"; }
has_run() { log | jq -e 'map(select(.kind == "implementation")) | length > 0'; }
wait_until "there is a run" has_run

# Tokens of a run, as the service makes them.
job=$(log | jq -er 'map(select(.kind == "implementation"))[0].id')
base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
run_token() { # run_token AUDIENCE
    local now payload
    now=$(date +%s)
    payload=$(jq -nc --arg sub "$job" --arg aud "$1" --argjson now "$now" \
        '{sub: $sub, aud: $aud, phase: "implementation", exp: ($now + 36000), iat: $now}')
    payload=$(printf '{"alg":"HS256","typ":"JWT"}' | base64url).$(printf '%s' "$payload" | base64url)
    printf '%s.%s' "$payload" \
        "$(printf '%s' "$payload" | openssl dgst -sha256 -hmac "$(saved .tokenSecret)" -binary | base64url)"
}
FUZZ_RESULT_TOKEN=$(run_token result)
FUZZ_PROGRESS_TOKEN=$(run_token progress)
FUZZ_HOOK_SECRET=$(saved .hookSecret)
FUZZ_SPARE_TOKENS=$(for _ in $(seq 100); do sign_in; done)
export FUZZ_RESULT_TOKEN FUZZ_PROGRESS_TOKEN FUZZ_HOOK_SECRET FUZZ_SPARE_TOKENS FUZZ_SEED=$seed

request "$url/api/openapi.json" >"$out/openapi.json"
case $length in
short) examples=5 phases=examples,coverage,fuzzing ;;
long) examples=${FUZZ_EXAMPLES:-1500} phases=examples,coverage,fuzzing,stateful ;;
esac
fuzz() { # fuzz NAME ARGUMENTS...
    local name=$1
    shift
    "$api_tools/schemathesis" --config-file tests/fuzz/schemathesis.toml run "$out/openapi.json" --url "$url" \
        --phases "$phases" --max-examples "$examples" --seed "$seed" --no-shrink --no-color \
        --generation-database none --report ndjson --report-ndjson-path "$out/$name.ndjson" "$@" >"$out/$name.txt" 2>&1 ||
        { sed -n '/FAILURES\|ERRORS/,$p' "$out/$name.txt" >&2 && failed="${failed:-} $name"; }
}
# Signing in last, because too many wrong codes block further requests.
fuzz service --exclude-path-regex '^/api/auth'
fuzz sign-in --include-path-regex '^/api/auth'

request "$url/" | jq -e '.status == "ok"' >/dev/null || { echo "the demo is unhealthy after the requests" >&2 && exit 1; }
# Errors and panics in the log of the service.
if grep -h '"level":"ERROR"' "$folder"/data/logs/* || grep -n 'ERROR\|panicked' "$out/demo.log"; then
    echo "the log of the demo contains errors" >&2 && exit 1
fi
[ -z "${failed:-}" ] || { echo "the API does not conform to its description (seed $seed); see $out/" >&2 && exit 1; }
sed -n 's/^ *\(.* generated.*\)$/fuzz: \1/p' "$out"/*.txt
