#!/usr/bin/env bash
# Runs one command as a named step and prints how long it took.
#
#   scripts/step.sh NAME COMMAND [ARGUMENT...]
#
# If STEP_LOG is set, appends a line "seconds <tab> verdict <tab> name" to that file, for a table at the end.
set -uo pipefail
name=$1
shift
printf '\n==> %s\n' "$name" >&2
start=$SECONDS
"$@"
code=$?
taken=$((SECONDS - start))
verdict=ok
[[ $code == 0 ]] || verdict=FAILED
printf '<== %s: %s, %d s\n' "$name" "$verdict" "$taken" >&2
[[ -z ${STEP_LOG:-} ]] || printf '%6d\t%s\t%s\n' "$taken" "$verdict" "$name" >>"$STEP_LOG"
exit "$code"
