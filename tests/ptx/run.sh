#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, after prepare.sh: builds the core with the PTX device, runs the
# device tests on it and the demo model, times the kernels, and runs small shapes under
# compute-sanitizer. Writes logs and a table to $OUT, or to ptx-out/. Needs Python 3.12 with what
# mference depends on, g++, cmake and ninja.
# Usage: tests/ptx/run.sh [build tests model time memcheck racecheck synccheck]
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-$PWD/ptx-out}
mkdir -p "$out"
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
export PYTHONPATH=$PWD/build/ptx/site:$PWD/build/ptx/wheels${PYTHONPATH:+:$PYTHONPATH}
[ $# -gt 0 ] || set -- build tests model time memcheck racecheck synccheck
failed=()

# Runs a command for so many seconds at most.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0
  shift 2
  echo "== $name"
  timeout --signal=INT --kill-after=15 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  # A test that was skipped has shown nothing.
  if grep -qE '^=*.*[0-9]+ skipped' "$out/$name.log"; then status=skipped; fi
  tail -n 15 "$out/$name.log"
  echo "== $name: status $status after $((SECONDS - begin)) s"
  [ "$status" = 0 ] || failed+=("$name")
}

pytest=("$python" -m pytest -q -p no:cacheprovider -o filterwarnings=default)
sanitizer=$(command -v compute-sanitizer || ls -d /usr/local/cuda*/bin/compute-sanitizer \
  /usr/local/cuda*/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1)

for what in "$@"; do
  case $what in
    build)
      step build 240 tests/ptx/build.sh
      [ ${#failed[@]} = 0 ] || exit 1 # there is nothing to run
      ;;
    tests) step tests 220 "${pytest[@]}" --durations=10 -k ptx tests/device ;;
    model)
      # The command would open a device of its own.
      step model 60 "${pytest[@]}" -p tests.ptx.as_metal -m "not slow" -k "not command" \
        tests/metal/test_demo_model.py
      ;;
    time) step times 60 "$python" tests/ptx/time_kernels.py --markdown "$out/times.md" ;;
    memcheck | racecheck | synccheck)
      # Every kernel on small shapes: the sanitizer slows each launch, and the first of each kernel.
      step "$what" 180 "${sanitizer:-compute-sanitizer}" --tool "$what" --target-processes all \
        --error-exitcode 9 --print-limit 30 "${pytest[@]}" --maxfail 3 -m "not slow" \
        -k "ptx and not real and not every_format" tests/device
      ;;
    *)
      echo "unknown step $what" >&2
      exit 2
      ;;
  esac
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
