#!/bin/sh
# Checks that this machine has what the build needs, and says in a sentence what to do where it has not.
# What is missing is installed here when that is possible without asking (Debian or Ubuntu, as root).
# `need.sh` is for the product, `need.sh c++` for an engine that is built from C++.
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
    fail "Python's venv module is needed; on Debian and Ubuntu: ${SUDO}apt-get install python3-venv"
}

need_compiler() {
    command -v cc >/dev/null 2>&1 && return
    is_debian_root && install_with_apt gcc libc6-dev && return
    fail "a C compiler is needed; on Debian and Ubuntu: ${SUDO}apt-get install gcc libc6-dev; on macOS: xcode-select --install"
}

need_cxx_compiler() {
    command -v c++ >/dev/null 2>&1 && return
    is_debian_root && install_with_apt g++ && return
    fail "a C++ compiler is needed to build the engine; on Debian and Ubuntu: ${SUDO}apt-get install g++; on macOS: xcode-select --install"
}

has_rust() { command -v cargo >/dev/null 2>&1 && command -v rustc >/dev/null 2>&1; }

rust_version() { rustc --version 2>/dev/null | cut -d ' ' -f 2; }

is_rust_new() { has_rust && version=$(rust_version) && [ -n "$version" ] && at_least "$version" "$RUST_MIN"; }

apt_has_rust() { # whether apt's rustc-web is new enough
    command -v apt-cache >/dev/null 2>&1 || return 1
    candidate=$(apt-cache policy rustc-web 2>/dev/null | sed -n 's/^ *Candidate: *//p')
    case $candidate in
        '' | '(none)') return 1 ;;
    esac
    at_least "${candidate%%[+~-]*}" "$RUST_MIN"
}

rust_command() { # what gets or updates Rust on this system
    if command -v rustup >/dev/null 2>&1; then
        echo "rustup update stable && rustup default stable"
    elif [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null 2>&1; then
        if has_rust; then echo "brew upgrade rust"; else echo "brew install rust"; fi
    elif apt_has_rust; then
        echo "${SUDO}apt-get install rustc-web cargo-web"
    else
        echo "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh  (see https://rustup.rs), then open a new shell"
    fi
}

need_rust() {
    is_rust_new && return
    if is_debian_root && ! command -v rustup >/dev/null 2>&1; then
        apt_has_rust || apt-get update -q >/dev/null 2>&1
        if apt_has_rust; then
            install_with_apt rustc-web cargo-web
            hash -r
            is_rust_new && return
        fi
    fi
    for tool in rustc cargo; do
        command -v "$tool" >/dev/null 2>&1 || fail "Rust >= $RUST_MIN is needed and there is no $tool; get it with: $(rust_command)"
    done
    version=$(rust_version)
    fail "Rust >= $RUST_MIN is needed and $(command -v rustc) is ${version:-without a toolchain}; get a newer one with: $(rust_command)"
}

RUST_MIN=1.88
SUDO=
[ "$(id -u)" = 0 ] || SUDO='sudo '
PYTHON=${PYTHON:-python3}
need_python
need_compiler
case ${1:-} in
    c++) need_cxx_compiler ;;
    *) need_rust ;;
esac
