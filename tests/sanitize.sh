#!/usr/bin/env bash
# Builds the core with sanitizers in an environment of its own and runs the core's tests in it.
# Usage: tests/sanitize.sh PYTHON address,undefined|thread [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 sanitizers=$2
shift 2

home=build/sanitize-${sanitizers//,/-}
if [ ! -x "$home/venv/bin/python" ]; then
  "$python" -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check \
    cmake ninja 'pybind11>=3.0' 'scikit-build-core>=0.11' 'pytest>=8' hypothesis
fi
"$home/venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation \
  --config-settings=build-dir="$home/core" --config-settings=cmake.build-type=RelWithDebInfo \
  --config-settings=cmake.define.MFERENCE_SANITIZE="$sanitizers" .

case $sanitizers in
  thread) runtime=libtsan.so ;;
  *) runtime=libasan.so ;;
esac
[ $# -gt 0 ] || set -- tests/device tests/experts tests/model tests/oracles -m "not slow"
# The interpreter itself leaks on purpose, so leaks are not looked for.
# The runtime finds what throws exceptions only in a C++ library that is loaded before Python's
# modules are. Its reports go to the terminal past pytest, which dies with the process.
libraries="$("${CXX:-g++}" -print-file-name=$runtime) $("${CXX:-g++}" -print-file-name=libstdc++.so)"
LD_PRELOAD=$libraries \
  ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  TSAN_OPTIONS=halt_on_error=1 OPENBLAS_NUM_THREADS=1 \
  "$home/venv/bin/python" -m pytest -q --capture=sys -p no:cacheprovider "$@"
