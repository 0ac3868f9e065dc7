# shellcheck shell=bash disable=SC2034
# Sourced. Sets `api_tools` to the folder of the programs of requirements.txt, and installs them once.
# Fails with a word where there is no PyPI.
api_tools=$PWD/target/fuzz-venv/bin
install_api_tools() {
    local wanted=tests/fuzz/requirements.txt venv=target/fuzz-venv
    cmp -s "$wanted" "$venv/installed.txt" && return
    if python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install -q --retries 0 -r "$wanted"; then
        cp "$wanted" "$venv/installed.txt"
    else
        echo "no PyPI here: the checks of the API's description are skipped" >&2
        return 1
    fi
}
