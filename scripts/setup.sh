#!/bin/sh
# Makes .venv ready, then does one job:
#   sh scripts/setup.sh diff [ARGS]   run `parity diff ARGS`
#   sh scripts/setup.sh test [ARGS]   run the tests, as `just test ARGS` does
#   sh scripts/setup.sh dev           stop after the set-up
# PYTHON names the interpreter to use. A later call installs again only when pyproject.toml changed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
venv="$root/.venv"
stamp="$venv/.parity-setup"

fail() {
    echo "setup: $*" >&2
    exit 2
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    found=$("${PYTHON:-python3}" --version 2>&1) || found="no ${PYTHON:-python3}"
    fail "Python 3.11 or newer is needed, found $found; install one or name it: PYTHON=/path/to/python3 sh scripts/setup.sh"
}

need_compiler() {
    for candidate in g++ clang++; do
        if command -v "$candidate" >/dev/null 2>&1; then return; fi
    done
    if "$venv/bin/python" -c 'import ziglang' 2>/dev/null; then return; fi
    fail "no C++ compiler (g++ or clang++) on PATH; the emu engine builds the kernels with one; install it, for example: apt-get install g++"
}

install() { # $1: the requirement, "." or ".[dev]"
    state="$root $(cksum <"$root/pyproject.toml")"
    have=$(cat "$stamp" 2>/dev/null) || have=""
    # A development set-up has everything that diff needs.
    if is_new_enough "$venv/bin/python"; then
        case "$have" in "$1 $state" | ".[dev] $state") return ;; esac
    else
        python=$(find_python) || exit 2
        "$python" -m venv --clear "$venv" >&2 ||
            fail "$python cannot make a virtual environment; on Debian or Ubuntu: apt-get install python3-venv"
    fi
    echo "setup: installing $1 into .venv (only when pyproject.toml changes)" >&2
    (cd "$root" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e "$1") >&2 ||
        fail "pip could not install $1; its message is above"
    echo "$1 $state" >"$stamp"
}

[ $# -ge 1 ] || fail "name a job: diff, test or dev"
job=$1
shift
case "$job" in
diff)
    need_compiler
    install .
    exec "$venv/bin/parity" diff "$@"
    ;;
test)
    need_compiler
    install ".[dev]"
    exec "$venv/bin/just" --justfile "$root/Justfile" test "$@"
    ;;
dev) install ".[dev]" ;;
*) fail "unknown job '$job'; the jobs are diff, test and dev" ;;
esac
