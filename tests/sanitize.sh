#!/usr/bin/env bash
# Builds the core with sanitizers in an environment of its own and runs the core's tests in it. Where
# its packages are, the Metal device and the software device under it are part of that.
# Usage: tests/sanitize.sh PYTHON address,undefined|thread [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 sanitizers=$2
shift 2

case $sanitizers in
  thread) runtime=tsan ;;
  *) runtime=asan ;;
esac
if command -v clang++-19 >/dev/null && [ -e /usr/include/Block.h ] &&
  compgen -G '/usr/lib/gcc/*/*/include/objc/objc.h' >/dev/null; then
  export CXX=clang++-19
  runtime=libclang_rt.$runtime-$(uname -m).so metal=ON
else
  export CXX=${CXX:-g++}
  runtime=lib$runtime.so metal=OFF
fi

home=build/sanitize-${sanitizers//,/-}
if [ ! -x "$home/venv/bin/python" ]; then
  "$python" -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check \
    cmake ninja 'pybind11>=3.0' 'scikit-build-core>=0.11' 'pytest>=8' hypothesis
fi
"$home/venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation \
  --config-settings=build-dir="$home/core" --config-settings=cmake.build-type=RelWithDebInfo \
  --config-settings=install.strip=false \
  --config-settings=cmake.define.MFERENCE_SANITIZE="$sanitizers" \
  --config-settings=cmake.define.MFERENCE_SOFTMETAL=$metal .

[ $# -gt 0 ] || set -- tests/base tests/device tests/experts tests/metal tests/model tests/oracles -m "not slow"
# The interpreter itself leaks on purpose, so leaks are not looked for.
# The runtime finds what throws exceptions only in a C++ library that is loaded before Python's
# modules are. Its reports go to the terminal past pytest, which dies with the process.
libraries="$("$CXX" -print-file-name="$runtime") $("$CXX" -print-file-name=libstdc++.so)"
# Reports name functions and lines with what g++ brings: clang's own symbolizer is another package.
options=halt_on_error=1:external_symbolizer_path=$(command -v addr2line)
LD_PRELOAD=$libraries ASAN_OPTIONS=$options:detect_leaks=0 UBSAN_OPTIONS=$options:print_stacktrace=1 \
  TSAN_OPTIONS=$options OPENBLAS_NUM_THREADS=1 \
  "$home/venv/bin/python" -m pytest -q --capture=sys -p no:cacheprovider "$@"
