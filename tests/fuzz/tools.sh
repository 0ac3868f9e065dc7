# shellcheck shell=bash disable=SC2034
# To be sourced. Sets `api_tools` to the folder of the programs of requirements.txt. `install_api_tools` installs
# them once; it prints a message and fails if PyPI is not reachable.
api_tools=$PWD/target/fuzz-venv/bin
install_api_tools() {
    local wanted=tests/fuzz/requirements.txt venv=target/fuzz-venv
    cmp -s "$wanted" "$venv/installed.txt" && return
    if python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install -q --retries 0 -r "$wanted"; then
        cp "$wanted" "$venv/installed.txt"
    else
        echo "PyPI is not reachable; skipping the checks of the API description" >&2
        return 1
    fi
}
