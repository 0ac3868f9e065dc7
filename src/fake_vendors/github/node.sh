#!/bin/sh
# Stand-in for Node.js, which completes a package of npm.sh: it copies the first file that the script names to the second.
folder=$(dirname "$1")
read -r from to <"$1" && cp "$folder/$from" "$folder/$to"
