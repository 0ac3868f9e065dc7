#!/usr/bin/env bash
# Runs the prepared jobs of one attempt of a workflow run, detached from the process that started this
# script.
#
# The argument is the attempt's folder, which run_attempt.rs writes. The claim lets only one runner per
# attempt continue. The `exit` file with the conclusion is written last: if it is missing and this
# process is gone, the attempt did not finish.
A=$1
mkdir "$A/claim" 2>/dev/null || exit 0
printf '%s' $$ >"$A/pid.tmp" && mv "$A/pid.tmp" "$A/pid"
overall=success
job_status=success
trap 'job_status=cancelled; overall=cancelled' TERM INT

# Functions that evaluate the deferred parts of expressions.
truthy() { case $1 in '' | false | 0 | null) return 1 ;; esac; }
flag() { if "$@"; then printf true; else printf false; fi; }
later_eq() { flag [ "${1,,}" = "${2,,}" ]; }
later_ne() { flag [ "${1,,}" != "${2,,}" ]; }
later_not() { if truthy "$1"; then printf false; else printf true; fi; }
later_and() { if truthy "$1"; then printf %s "$2"; else printf %s "$1"; fi; }
later_or() { if truthy "$1"; then printf %s "$1"; else printf %s "$2"; fi; }
later_contains() { case ${1,,} in *"${2,,}"*) printf true ;; *) printf false ;; esac; }
later_starts() { case ${1,,} in "${2,,}"*) printf true ;; *) printf false ;; esac; }
later_status() {
  case $1 in
    always) printf true ;;
    status) printf %s "$job_status" ;;
    *) flag [ "$1" = "$job_status" ] ;;
  esac
}
later_file() { cat "$A/$1" 2>/dev/null; }
later_step() { cat "$job/steps/$1" 2>/dev/null; }
later_env() {
  local pair
  for pair in "${job_env[@]}"; do case $pair in "$1="*) printf %s "${pair#*=}" ;; esac; done
}

# Evaluates the marked parts of a text; the result is in `expanded`.
expand() {
  local text=$1 code value
  expanded=
  while [[ $text == *$'\x02'*$'\x03'* ]]; do
    expanded+=${text%%$'\x02'*}
    text=${text#*$'\x02'}
    code=${text%%$'\x03'*}
    text=${text#*$'\x03'}
    eval "value=$code"
    expanded+=$value
  done
  expanded+=$text
}

# Reads KEY=value lines and KEY<<END blocks of a command file, and calls "$2" KEY VALUE for each.
read_pairs() {
  local line key value end
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
      *'<<'*)
        key=${line%%<<*} end=${line#*<<} value=
        while IFS= read -r line && [ "$line" != "$end" ]; do value+=${value:+$'\n'}$line; done
        "$2" "$key" "$value"
        ;;
      *=*) "$2" "${line%%=*}" "${line#*=}" ;;
    esac
  done <"$1"
}
save_output() { mkdir -p "$job/steps" && printf %s "$2" >"$job/steps/$step_id.outputs.$1"; }
save_env() { job_env+=("$1=$2"); }

run_step() {
  local rc started workdir expanded value files=$step/files shell
  step_id=$(cat "$step/id")
  name=$(cat "$step/name")
  started=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  eval "value=$(cat "$step/if")"
  if ! truthy "$value" || [ ! -f "$step/script" ]; then
    record_step skipped "$started"
    return
  fi
  mkdir -p "$files"
  : >"$files/output"; : >"$files/env"; : >"$files/summary"; : >"$files/path"
  local envs=("${job_env[@]}")
  while IFS= read -r -d '' value; do expand "$value"; envs+=("$expanded"); done <"$step/env"
  envs+=("GITHUB_OUTPUT=$files/output" "GITHUB_ENV=$files/env" "GITHUB_PATH=$files/path"
    "GITHUB_STEP_SUMMARY=$files/summary" "GITHUB_ACTION=__run_$step_id")
  expand "$(cat "$step/header")"; printf '%s\n' "$expanded" >>"$log"
  expand "$(cat "$step/script")"; printf '%s\n' "$expanded" >"$files/script.sh"
  expand "$(cat "$step/workdir")"; workdir=$expanded
  read -r -a shell <"$step/shell"
  (cd "$workdir" && exec env -i "${envs[@]}" "${shell[@]}" "$files/script.sh") >>"$log" 2>&1 </dev/null &
  while :; do
    wait $!
    rc=$?
    kill -0 $! 2>/dev/null || break
  done
  read_pairs "$files/output" save_output
  read_pairs "$files/env" save_env
  while IFS= read -r value; do prepend_path "$value"; done <"$files/path"
  finish_step
}

prepend_path() {
  local at
  for at in "${!job_env[@]}"; do
    case ${job_env[at]} in PATH=*) job_env[at]=PATH=$1:${job_env[at]#PATH=} ;; esac
  done
}

finish_step() {
  local outcome=success
  if [ "$job_status" = cancelled ] && [ $rc -ne 0 ]; then
    outcome=cancelled
  elif [ $rc -ne 0 ]; then
    outcome=failure
    printf '##[error]Process completed with exit code %s.\n' "$rc" >>"$log"
    if [ ! -f "$step/continue" ] && [ "$job_status" = success ]; then job_status=failure; fi
  fi
  record_step "$outcome" "$started"
}

record_step() {
  mkdir -p "$job/steps"
  printf %s "$1" >"$job/steps/$step_id.outcome"
  printf %s "$1" >"$job/steps/$step_id.conclusion"
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$name" >>"$job/done"
}

run_job() {
  local value
  job_id=$(cat "$job/id")
  if [ "$overall" != cancelled ]; then job_status=success; fi
  needs_ok=true
  while IFS= read -r value; do
    [ -z "$value" ] || [ "$(later_file "needs/$value.result")" = success ] || needs_ok=false
  done <"$job/needs"
  if [ "$needs_ok" = false ] && [ "$job_status" = success ]; then job_status=failure; fi
  eval "value=$(cat "$job/if")"
  if ! truthy "$value"; then
    finish_job skipped
    return
  fi
  if [ "$overall" != cancelled ]; then job_status=success; fi
  log=$job/log
  date -u +%Y-%m-%dT%H:%M:%SZ >"$job/started"
  job_env=()
  while IFS= read -r -d '' value; do expand "$value"; job_env+=("$expanded"); done <"$job/env"
  for step in "$job"/step-*; do [ -d "$step" ] && run_step; done
  while IFS= read -r -d '' value; do
    expand "$value"
    printf %s "${expanded#*=}" >"$A/needs/$job_id.outputs.${expanded%%=*}"
  done <"$job/outputs"
  [ "$job_status" = success ] || { [ "$overall" = cancelled ] || overall=failure; }
  finish_job "$job_status"
}

finish_job() {
  printf %s "$1" >"$A/needs/$job_id.result"
  date -u +%Y-%m-%dT%H:%M:%SZ >"$job/finished"
  printf %s "$1" >"$job/result"
}

for job in "$A"/job-*; do [ -f "$job/carried" ] || run_job; done
printf %s "$overall" >"$A/exit.tmp" && mv "$A/exit.tmp" "$A/exit"
