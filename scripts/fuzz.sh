#!/usr/bin/env bash
# Runs fuzz targets, all of them or those named, each for FUZZ_SECONDS of CPU time (default: 30) or FUZZ_RUNS executions.
#
#   scripts/fuzz.sh [TARGET...]
#   FUZZ_SECONDS=1200 FUZZ_RUNS=10000000 FUZZ_CSV=bench/results/fuzz.csv scripts/fuzz.sh
#
# Inputs start from fuzz/seeds/TARGET or golden files and grow in FUZZ_CORPUS (default: fuzz/corpus). An input that fails is kept in
# fuzz/artifacts/TARGET. FUZZ_CSV (default: target/bench/fuzz.csv) gets a line per target, which replaces its last one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "error: cargo-fuzz for nightly Rust is not installed" >&2
    echo "hint: rustup toolchain install nightly && cargo install --locked cargo-fuzz" >&2
    exit 1
fi

seconds=${FUZZ_SECONDS:-30}
runs=${FUZZ_RUNS:-1000000000}
corpus=${FUZZ_CORPUS:-fuzz/corpus}
csv=${FUZZ_CSV:-target/bench/fuzz.csv}
header=target,executions,seconds,cpu_seconds,edges,inputs,findings
# What `time` prints: user and system CPU time.
TIMEFORMAT='%0U %0S'

# Recordings are files: in memory where the system has such a folder.
folder=/tmp
[[ -w /dev/shm ]] && folder=/dev/shm
TMPDIR=$(mktemp -d "$folder/kino-fuzz.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
log=$TMPDIR/log

# The most that one allocation may take, in megabytes: 128 MiB is the limit of a zarr chunk, 64 MiB that of a frame.
malloc_limit() {
    case $1 in
        shard) echo 24 ;;
        table) echo 512 ;;
        import_*) echo 256 ;;
        *) echo 128 ;;
    esac
}

# The folders whose files a target starts from.
seeds() {
    local golden=crates/kino_dataset/tests/golden/v1
    case $1 in
        shard) echo crates/kino_format/tests/golden ;;
        table) echo "$golden"/*/episodes ;;
        manifest) echo "$golden"/*/versions ;;
        *) [[ ! -d fuzz/seeds/$1 ]] || echo "fuzz/seeds/$1" ;;
    esac
}

# libFuzzer stops by the clock. On a shared machine that is less CPU time than asked for, so a target is started again
# for what is missing.
run_target() {
    local target=$1 started=$SECONDS cpu=0 executed=0 code=0
    mkdir -p "$corpus/$target" "fuzz/artifacts/$target"
    while ((code == 0 && cpu < seconds && executed < runs)); do
        run_once "$target" $((seconds - cpu)) $((runs - executed)) || code=$?
    done
    local edges inputs findings
    edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 | cut -d' ' -f2 || true)
    inputs=$(find "$corpus/$target" -type f | wc -l)
    findings=$(find "fuzz/artifacts/$target" -type f | wc -l)
    write_line "$target" "$target,$executed,$((SECONDS - started)),$cpu,${edges:-0},$inputs,$findings"
    [[ $code == 0 ]] || { tail -n 60 "$log"; return 1; }
}

# Adds to `cpu` and `executed` of its caller.
run_once() {
    local target=$1 left=$2 runs_left=$3 options=() folders took status=0
    [[ -e fuzz/dicts/$target.dict ]] && options+=("-dict=fuzz/dicts/$target.dict")
    read -ra folders <<<"$corpus/$target $(seeds "$target")"
    took=$({ time "$built/$target" -max_total_time="$((left < 2 ? 2 : left))" -runs="$runs_left" -timeout=20 \
        -rss_limit_mb=2048 -malloc_limit_mb="$(malloc_limit "$target")" -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$target/" "${options[@]}" "${folders[@]}" >"$log" 2>&1; } 2>&1) || status=$?
    find "$TMPDIR" -mindepth 1 -maxdepth 1 ! -name log -exec rm -rf {} +
    cpu=$((cpu + ${took/ /+}))
    executed=$((executed + $(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | grep . || echo 0)))
    return "$status"
}

write_line() {
    mkdir -p "$(dirname "$csv")"
    local others
    others=$(grep -v -e "^$header" -e "^$1," "$csv" 2>/dev/null || true)
    { echo "$header"; { [[ -z $others ]] || echo "$others"; echo "$2"; } | sort; } >"$csv.new"
    mv "$csv.new" "$csv"
    echo "$2"
}

# Link-time optimisation of each target would take longer than most runs.
export CARGO_PROFILE_RELEASE_LTO=off
built=${CARGO_TARGET_DIR:-target}/$(rustc +nightly -vV | sed -n 's/^host: //p')/release
if [[ $# == 0 ]]; then
    mapfile -t all < <(cargo +nightly fuzz list)
    scripts/step.sh "build the fuzz targets" cargo +nightly fuzz build --features libfuzzer
fi
failed=0
for target in "${@:-${all[@]}}"; do
    # A target that was named is built alone: all of them take many minutes.
    [[ $# == 0 ]] || scripts/step.sh "build $target" cargo +nightly fuzz build --features libfuzzer "$target"
    run_target "$target" || failed=1
done
echo "wrote $csv" >&2
exit "$failed"
