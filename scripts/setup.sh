#!/usr/bin/env bash
# Makes .venv from requirements.lock, with the project itself and its LeRobot plugins in editable mode.
#
# Does nothing, and needs no network, when .venv already fits the lock. The stamp is written last, so that an
# interrupted installation is taken up again. Brings uv into .tools/uv when there is none on PATH, and installs
# the libraries for off-screen rendering with apt when they are missing and this user may.
#
#   PYTHON=/path/to/python3.12   use this interpreter instead of searching for one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv TOOLS=.tools
readonly STAMP=$VENV/.robot-rl-installed
readonly PLUGINS=(plugins/lerobot_policy_robot_rl plugins/lerobot_env_robot_rl)

say() { printf 'setup: %s\n' "$*"; }
stop() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

fingerprint() { cat requirements.lock overrides.txt pyproject.toml "${PLUGINS[@]/%//pyproject.toml}" scripts/setup.sh .python-version | sha256sum | cut -d' ' -f1; }

is_python312() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' >/dev/null 2>&1; }

# A version manager may put a python3.12 on PATH that only prints an error, so every candidate is run before it is believed.
likely_pythons() {
    local home
    type -ap python3.12 python3 python || true
    for home in "${HOME:-/nonexistent}" "$(getent passwd "$(id -u)" | cut -d: -f6)"; do
        printf '%s\n' "$home"/.pyenv/versions/3.12*/bin/python3.12 "$home"/.local/share/uv/python/cpython-3.12*/bin/python3.12 \
            "$home"/.local/bin/python3.12 "$home"/{miniconda3,anaconda3,miniforge3}/bin/python3.12
    done
    printf '%s\n' "${PYENV_ROOT:-/nonexistent}"/versions/3.12*/bin/python3.12 /usr/bin/python3.12 /usr/local/bin/python3.12 \
        /opt/*/bin/python3.12 /opt/python*/*/bin/python3.12 "$PWD/$TOOLS"/python/*/bin/python3.12
}

find_python() {
    local candidate
    if [[ -n ${PYTHON:-} ]]; then
        is_python312 "$PYTHON" || stop "PYTHON=$PYTHON is not a working Python 3.12; unset it or point it to one."
        command -v "$PYTHON"
        return
    fi
    while IFS= read -r candidate; do
        if [[ -x $candidate ]] && is_python312 "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)' # behind a shim stands the real one
            return
        fi
    done < <(likely_pythons)
    return 1
}

may_install_packages() { command -v apt-get >/dev/null && { [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null; }; }

apt_install() {
    local as_root=()
    [[ $(id -u) == 0 ]] || as_root=(sudo -n)
    local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends "$@")
    "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" timeout 300 apt-get update -qq >/dev/null 2>&1 && "${install[@]}" >/dev/null 2>&1; }
}

# Prints the uv to use. Debian and Ubuntu refuse a bare `pip install`, hence an environment of its own for it; where their
# python3-venv package is missing too, pip may still fill a plain folder.
find_uv() {
    local private=$PWD/$TOOLS/uv/bin/uv python log=$TOOLS/uv-install.log
    if command -v uv >/dev/null && uv pip sync --help >/dev/null 2>&1; then command -v uv && return; fi
    if [[ -x $private ]] && "$private" --version >/dev/null 2>&1; then echo "$private" && return; fi
    mkdir -p "$TOOLS"
    : >"$log"
    for python in "$@"; do
        rm -rf "$TOOLS/uv"
        if "$python" -m venv "$TOOLS/uv" >>"$log" 2>&1 && "$TOOLS/uv/bin/python" -m pip install -q uv >>"$log" 2>&1; then echo "$private" && return; fi
        rm -rf "$TOOLS/uv"
        if "$python" -m pip install -q --target "$TOOLS/uv" uv >>"$log" 2>&1 && [[ -x $private ]]; then echo "$private" && return; fi
    done
    rm -rf "$TOOLS/uv"
    return 1
}

uv_or_stop() {
    local candidates=("$@") system
    system=$(command -v python3 || true)
    [[ -z $system ]] || candidates+=("$system")
    [[ ${#candidates[@]} -gt 0 ]] || stop "no Python at all was found; install Python 3.12, or set PYTHON=/path/to/python3.12, and run make again."
    find_uv "${candidates[@]}" && return
    if [[ -x /usr/bin/python3 ]] && may_install_packages && apt_install python3-venv && find_uv /usr/bin/python3; then return; fi
    if grep -qiE 'ensurepip|No module named (pip|venv)' "$TOOLS/uv-install.log" && ! grep -qiE 'connection|resolve|timed out' "$TOOLS/uv-install.log"; then
        stop "uv is missing and this Python can make no environment for it; install the package python3-venv (Debian, Ubuntu) or uv itself, and run make again."
    fi
    stop "uv is missing and could not be fetched (is this machine online? details: $TOOLS/uv-install.log); install uv or connect, and run make again."
}

install_rendering_libraries() {
    local missing=()
    find_library libEGL.so.1 || missing+=(libegl1)
    find_library libOSMesa.so || missing+=(libosmesa6)
    compgen -G '/usr/lib/*/dri/swrast_dri.so' >/dev/null || compgen -G '/usr/lib/*/libgallium*.so' >/dev/null || missing+=(libgl1-mesa-dri)
    [[ ${#missing[@]} -gt 0 ]] || return 0
    if ! may_install_packages; then
        say "rendering (videos, camera tasks) needs the system packages ${missing[*]}, which this user may not install; going on without."
    elif apt_install "${missing[@]}"; then
        say "installed ${missing[*]} for rendering."
    else
        say "could not install ${missing[*]}; going on without rendering (videos, camera tasks)."
    fi
}

find_library() {
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "$1" || compgen -G "/usr/lib/*/$1*" >/dev/null || compgen -G "/usr/lib64/$1*" >/dev/null
}

# uv trusts a list of its own unless told otherwise; behind a company's proxy only the system's certificates fit.
trust_system_certificates() {
    local bundle
    for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt; do
        [[ ! -s $bundle ]] || export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-1} UV_NATIVE_TLS=${UV_NATIVE_TLS:-1} # the new name and the old
    done
}

# Hard links need the cache and the environment on one file system; anything else is a copy.
choose_link_mode() {
    [[ -z ${UV_LINK_MODE:-} ]] || return 0
    local cache
    cache=$("$1" cache dir 2>/dev/null) && mkdir -p "$cache" 2>/dev/null || return 0
    [[ $(stat -c %d "$cache") == $(stat -c %d .) ]] || export UV_LINK_MODE=copy
}

is_ready() { [[ -f $STAMP && $(<"$STAMP") == "$1" ]] && is_python312 $VENV/bin/python; }

main() {
    local python uv wanted
    command -v sha256sum >/dev/null || stop "the program sha256sum is missing; install the package coreutils and run make again."
    wanted="$(fingerprint) $PWD"
    is_ready "$wanted" && return 0

    # Two terminals may start at once: the second waits, and then finds the work done.
    mkdir -p "$TOOLS"
    exec 9>"$TOOLS/lock"
    if command -v flock >/dev/null; then flock 9; fi
    is_ready "$wanted" && return 0
    unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX
    trust_system_certificates

    if python=$(find_python); then
        uv=$(uv_or_stop "$python")
    else
        [[ -z ${PYTHON:-} ]] || exit 1
        uv=$(uv_or_stop)
        say "no Python 3.12 found; asking uv for one."
        export UV_PYTHON_INSTALL_DIR=$PWD/$TOOLS/python
        "$uv" python install -q 3.12 >/dev/null 2>&1 && python=$(find_python) ||
            stop "Python 3.12 was not found and could not be fetched; install it, or set PYTHON=/path/to/python3.12, and run make again."
    fi
    say "using $python and $("$uv" --version | cut -d' ' -f1-2)"
    install_rendering_libraries
    choose_link_mode "$uv"

    # The scripts in an environment name its folder, so one that was moved here with its repository is made anew.
    if [[ -f $STAMP && $(cut -d' ' -f2- "$STAMP") != "$PWD" ]]; then rm -rf $VENV; fi
    rm -f $STAMP
    is_python312 $VENV/bin/python || "$uv" venv -q --clear --python "$python" $VENV || stop "could not make $VENV with $python."
    say "installing $(grep -c '==' requirements.lock) packages into $VENV (several GB the first time, then cached)"
    "$uv" pip sync -q --python $VENV/bin/python requirements.lock ||
        stop "the packages of requirements.lock could not be installed (see above; is this machine online?); run make again to go on."
    "$uv" pip install -q --python $VENV/bin/python --no-deps --no-build-isolation -e . "${PLUGINS[@]/#/-e./}" || stop "the project itself could not be installed (see above)."
    printf '%s\n' "$wanted" >$STAMP.part
    mv $STAMP.part $STAMP
    say "ready."
}

main
