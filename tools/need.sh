#!/bin/sh
# Checks that this machine has what the build needs, and says in a sentence what to do where it has not.
# Rust is installed here when that is possible without asking (Debian or Ubuntu, as root).
set -u

fail() {
    printf 'hivenet-router: %s\n' "$*" >&2
    exit 1
}

is_debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

install_with_apt() {
    printf 'hivenet-router: installing %s\n' "$*"
    apt-get update -q >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null || fail "apt-get could not install $*; install it by hand"
}

at_least() { # at_least 1.95.0 1.88
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

need_python() {
    command -v "$PYTHON" >/dev/null 2>&1 || fail "Python >= 3.11 is needed and '$PYTHON' is not there; set PYTHON=/path/to/python3"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python >= 3.11 is needed and '$PYTHON' is $("$PYTHON" -V 2>&1); set PYTHON=/path/to/a/newer/python3"
    "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
    is_debian_root && install_with_apt python3-venv && return
    fail "Python's venv module is needed; on Debian and Ubuntu: apt-get install python3-venv"
}

need_compiler() {
    command -v cc >/dev/null 2>&1 && return
    is_debian_root && install_with_apt gcc libc6-dev && return
    fail "a C compiler is needed; on Debian and Ubuntu: apt-get install gcc libc6-dev; on macOS: xcode-select --install"
}

need_rust() {
    if ! command -v cargo >/dev/null 2>&1; then
        if is_debian_root && apt-cache show rustc-web >/dev/null 2>&1; then
            install_with_apt rustc-web cargo-web
        elif is_debian_root && apt-get update -q >/dev/null 2>&1 && apt-cache show rustc-web >/dev/null 2>&1; then
            install_with_apt rustc-web cargo-web
        else
            fail "Rust >= 1.88 is needed; install it with rustup (https://rustup.rs), on macOS with: brew install rust"
        fi
    fi
    version=$(rustc --version | cut -d ' ' -f 2)
    at_least "$version" 1.88 || fail "Rust >= 1.88 is needed and this is $version; update it with: rustup update"
}

PYTHON=${PYTHON:-python3}
need_python
need_compiler
need_rust
