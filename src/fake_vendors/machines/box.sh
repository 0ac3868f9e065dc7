#!/usr/bin/env bash
# Runs the program of one machine, detached from the process that started this script. The argument is
# the machine's folder.
#
# The program gets the environment that the machine was created with, and nothing else. The `exit` file
# is written last: if it is missing and this process is gone, the machine was killed.
B=$1
mkdir "$B/claim" 2>/dev/null || exit 0
printf '%s' $$ >"$B/pid.tmp" && mv "$B/pid.tmp" "$B/pid"
mapfile -d '' -t environment <"$B/env"
mapfile -d '' -t command <"$B/command"
cd "$B/home" || exit 1
# As at a host, a stop signals the program and not its children.
program=
trap 'kill -TERM $program 2>/dev/null' TERM
env -i "${environment[@]}" "${command[@]}" >>"$B/log" 2>&1 &
program=$!
wait "$program"
code=$?
while kill -0 "$program" 2>/dev/null; do
  wait "$program"
  code=$?
done
printf '%s' "$code" >"$B/exit.tmp" && mv "$B/exit.tmp" "$B/exit"
