#!/usr/bin/env bash
# Plays one machine, detached from whoever started it. The argument is the machine's folder.
#
# Its program gets the environment that the machine was made with, and nothing else. The last act is
# the `exit` file: as long as it is missing and this process is gone, the machine was killed.
B=$1
mkdir "$B/claim" 2>/dev/null || exit 0
printf '%s' $$ >"$B/pid.tmp" && mv "$B/pid.tmp" "$B/pid"
mapfile -d '' -t given <"$B/env"
mapfile -d '' -t command <"$B/command"
cd "$B/home" || exit 1
# Whoever stops the machine signals the program as well; this only has to outlive it.
trap : TERM
env -i "${given[@]}" "${command[@]}" >>"$B/log" 2>&1 &
program=$!
wait "$program"
code=$?
while kill -0 "$program" 2>/dev/null; do
  wait "$program"
  code=$?
done
printf '%s' "$code" >"$B/exit.tmp" && mv "$B/exit.tmp" "$B/exit"
