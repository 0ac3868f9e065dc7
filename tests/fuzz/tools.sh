# shellcheck shell=bash disable=SC2034
# To be sourced. Sets `api_tools` to the folder of the programs of requirements.txt. `install_api_tools` installs
# them once; it prints a message and fails if PyPI does not provide them.
api_tools=$PWD/target/fuzz-venv/bin
has_api_tools() { cmp -s tests/fuzz/requirements.txt target/fuzz-venv/installed.txt; }
install_api_tools() {
    local wanted=tests/fuzz/requirements.txt venv=target/fuzz-venv
    if has_api_tools; then return; fi
    if python3 -m venv "$venv" && timeout 300 "$venv/bin/pip" install -q --retries 0 -r "$wanted"; then
        cp "$wanted" "$venv/installed.txt"
    else
        echo "the packages of $wanted cannot be installed from PyPI" >&2
        return 1
    fi
}
