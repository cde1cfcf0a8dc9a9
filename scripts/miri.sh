#!/usr/bin/env bash
# Interprets the tests of the unsafe code that Miri can see: fuzz/miri/src/lib.rs lists the files.
#
# MIRI_SEEDS (default: 16) is the number of interleavings of threads that are tried.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "error: Miri for nightly Rust is not installed" >&2
    echo "hint: rustup toolchain install nightly --component miri,rust-src" >&2
    exit 1
fi
export MIRIFLAGS="-Zmiri-many-seeds=0..${MIRI_SEEDS:-16}"
scripts/step.sh "Miri" cargo +nightly miri test --manifest-path fuzz/miri/Cargo.toml --target-dir target/miri
