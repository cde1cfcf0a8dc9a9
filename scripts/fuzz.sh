#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS (default: 30).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "error: cargo-fuzz for nightly Rust is not installed" >&2
    echo "hint: rustup toolchain install nightly && cargo install cargo-fuzz" >&2
    exit 1
fi
for target in $(cargo +nightly fuzz list); do
    scripts/step.sh "fuzz $target" cargo +nightly fuzz run "$target" -- -max_total_time="${FUZZ_SECONDS:-30}"
done
