#!/usr/bin/env bash
# Fuzzes every target at once for the given time; inputs that reach new code are kept in
# build/fuzz/TARGET/corpus and serve the next run. A finding fails the run, and its log says where
# its input lies.
# Usage: tests/fuzz/run.sh PYTHON SECONDS [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1 seconds=$2
shift 2
if [ $# -eq 0 ]; then
  mapfile -t targets < <("$python" -c 'from tests.fuzz.targets import TARGETS; print(*TARGETS, sep="\n")')
  set -- "${targets[@]}"
fi
export TMPDIR=$PWD/build/fuzz/tmp
rm -rf "$TMPDIR"
mkdir -p "$TMPDIR"

declare -A running
for target in "$@"; do
  home=build/fuzz/$target
  mkdir -p "$home/corpus"
  nice "$python" -m tests.fuzz.fuzz "$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=1024 -max_len=16384 -artifact_prefix="$home/" "$home/corpus" \
    >"$home/log" 2>&1 &
  running[$target]=$!
done
failed=0
for target in "$@"; do
  if wait "${running[$target]}"; then
    echo "$target: $(grep '^Done ' "build/fuzz/$target/log"), $(grep -o 'cov: [0-9]*' "build/fuzz/$target/log" | tail -1)"
  else
    failed=1
    echo "$target: a finding; the end of build/fuzz/$target/log:" >&2
    tail -n 30 "build/fuzz/$target/log" >&2
  fi
done
exit $failed
