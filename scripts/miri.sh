#!/usr/bin/env bash
# Runs the unit tests of the unsafe code that Miri can interpret. CONTRIBUTING.md says what it cannot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "error: Miri for nightly Rust is not installed" >&2
    echo "hint: rustup toolchain install nightly --component miri,rust-src" >&2
    exit 1
fi

# Threads write disjoint parts of one batch. More than one seed: each is another interleaving of the threads.
MIRIFLAGS="-Zmiri-many-seeds=0..${MIRI_SEEDS:-16}" \
    scripts/step.sh "Miri: engine::buffers" \
    cargo +nightly miri test --locked -p kino_loader --lib engine::buffers
