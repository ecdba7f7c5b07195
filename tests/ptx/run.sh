#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, after prepare.sh: builds the core with the PTX device, runs the
# device tests on it, a part of them under compute-sanitizer, and times the kernels. Writes logs and
# a table to $OUT, or to ptx-out/. Needs Python 3.12 with numpy, g++, cmake and ninja.
# Usage: tests/ptx/run.sh [build tests sanitize time]
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-$PWD/ptx-out}
mkdir -p "$out"
python=${PYTHON:-python3}
site=$PWD/build/ptx/site
export PYTHONUNBUFFERED=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 OPENBLAS_NUM_THREADS=4
export PYTHONPATH=$site:$PWD/build/ptx/wheels${PYTHONPATH:+:$PYTHONPATH}
[ $# -gt 0 ] || set -- build tests sanitize time
failed=()

step() {
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  local begin=$SECONDS status=0
  timeout --signal=INT --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  tail -n 12 "$out/$name.log"
  echo "== $name: exit $status after $((SECONDS - begin)) s"
  [ $status = 0 ] || failed+=("$name")
  return $status
}

build() {
  set -e
  rm -rf build/ptx/wheels
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --disable-pip-version-check --target build/ptx/wheels .whl/*.whl
  cmake -S . -B build/ptx -G Ninja -DMFERENCE_PTX=ON -DCMAKE_BUILD_TYPE=Release \
    -Dpybind11_DIR="$("$python" -m pybind11 --cmakedir)" \
    -DPython_EXECUTABLE="$(command -v "$python")"
  cmake --build build/ptx
  rm -rf "$site"
  mkdir -p "$site/mference-0.dist-info"
  printf 'Metadata-Version: 2.1\nName: mference\nVersion: 0\n' >"$site/mference-0.dist-info/METADATA"
  cp -r src/. "$site"
  cmake --install build/ptx --prefix "$site"
  "$python" - <<'END'
from mference import _core

print(_core.__file__)
print(_core.ptx_device(".ptx"))
END
}

pytest=("$python" -m pytest -p no:cacheprovider -o filterwarnings=default -k ptx)
# Small shapes of every kernel: each access and barrier takes the sanitizer long.
fast='not slow'
few='ptx and not real and not whole and not HIDDEN'
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer \
  /opt/nvidia/*/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer \
  2>/dev/null | head -n 1)

sanitize() {
  local tool=$1
  shift
  [ -n "$sanitizer" ] || { echo "there is no compute-sanitizer"; return 1; }
  "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 "$@" \
    "${pytest[@]}" -q -x -m "$fast" -k "$few" tests/device
}
export -f build sanitize 2>/dev/null

for what in "$@"; do
  case $what in
    build)
      # A build that fails leaves nothing to run.
      step build 300 bash -c "$(declare -f build); python='$python' site='$site'; build" || exit 1
      ;;
    tests)
      step tests 400 "${pytest[@]}" -q --durations=15 tests/device
      ;;
    sanitize)
      for tool in memcheck racecheck synccheck; do
        step "$tool" 150 bash -c "$(declare -f sanitize); $(declare -p pytest fast few sanitizer)
          sanitize $tool"
      done
      ;;
    time)
      step times 120 "$python" tests/ptx/time_kernels.py --markdown "$out/times.md"
      ;;
    *)
      echo "unknown step $what" >&2
      exit 2
      ;;
  esac
done
[ ${#failed[@]} = 0 ] || { echo "failed: ${failed[*]}"; exit 1; }
