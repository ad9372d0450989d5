#!/bin/sh
# Fuzzes the framing guard, the digest, the meter, whole connections, engines' answers and the bootstrap port's HTTP/2,
# each for so many seconds (60 unless said otherwise).
# What is found lies in plane/plane-core/fuzz/artifacts/ and is run again with `cargo +nightly fuzz run NAME FILE`.
set -eu
seconds=${1:-60}
cd "$(dirname "$0")/../plane/plane-core"
python=${PYTHON:-python3}

case $seconds in
    '' | *[!0-9]*) echo "usage: tools/fuzz.sh [SECONDS]: '$seconds' is no number of seconds" >&2; exit 2 ;;
esac
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "Fuzzing needs a nightly toolchain: rustup toolchain install nightly --profile minimal" >&2
    exit 1
fi
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "Fuzzing needs cargo-fuzz: cargo install cargo-fuzz --locked" >&2
    exit 1
fi
for target in guard digest meter connection answers; do
    echo "$target, $seconds s:"
    # What was found before, which stays here, and what to begin with, where there is something.
    mkdir -p "fuzz/corpus/$target"
    set -- "fuzz/corpus/$target"
    [ ! -d "fuzz/seeds/$target" ] || set -- "$@" "fuzz/seeds/$target"
    cargo +nightly fuzz run "$target" "$@" -- \
        -max_total_time="$seconds" -max_len=4096 -print_final_stats=1
done
echo "http2, $seconds s:"
cd ../..
PYTHONPATH=src:. "$python" -m tests.fuzz.http2 "$seconds" plane/plane-core/fuzz/artifacts/http2
