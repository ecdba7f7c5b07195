#!/usr/bin/env bash
# Compiles and links the extension for macOS on Apple silicon, warnings as errors. It is not run.
# Usage: tests/portability/macos.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1 home=build/macos

compiler=$(tools/zig.sh "$python" aarch64-macos)
tools=$(dirname "$compiler")
if [ ! -e "$home/installed" ]; then
  "$python" -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check cmake ninja 'pybind11>=3.0'
  touch "$home/installed"
fi
# zig's linker crashes on a bundle. A dynamic library needs the same symbols.
printf '#!/bin/bash\nexec "%s" "${@/#-bundle/-dynamiclib}"\n' "$compiler" >"$home/c++"
chmod +x "$home/c++"
PATH=$PWD/$home/venv/bin:$PATH
# No Mac, so no SDK: zig brings the C library's headers, the software device's headers stand in for
# the frameworks', which tests/softmetal/api checks against Apple's, and stubs stand in for the
# frameworks. Linux's strip is no use.
for framework in CoreGraphics Foundation Metal; do
  mkdir -p "$home/frameworks/$framework.framework"
  printf -- '--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: %s\n...\n' \
    "/System/Library/Frameworks/$framework.framework/$framework" \
    >"$home/frameworks/$framework.framework/$framework.tbd"
done
cmake -S . -B "$home/core" -G Ninja --log-level=WARNING \
  -DCMAKE_BUILD_TYPE=Release -DMFERENCE_WERROR=ON \
  -DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 -DCMAKE_OSX_SYSROOT= \
  -DCMAKE_CXX_COMPILER="$PWD/$home/c++" -DCMAKE_OBJCXX_COMPILER="$PWD/$home/c++" \
  -DCMAKE_OBJCXX_FLAGS="-isystem $PWD/tests/softmetal/sdk -fblocks -DOS_OBJECT_USE_OBJC=0" \
  -DCMAKE_MODULE_LINKER_FLAGS="-F$PWD/$home/frameworks" -DCMAKE_AR="$tools/ar" -DCMAKE_RANLIB="$tools/ranlib" \
  -DCMAKE_INSTALL_NAME_TOOL=true -DCMAKE_STRIP=true \
  -Dpybind11_DIR="$(python -m pybind11 --cmakedir)" -DPYTHON_MODULE_EXTENSION=.cpython-darwin.so
cmake --build "$home/core"
echo "built $home/core/_core.cpython-darwin.so for macOS on arm64; nothing of it was run"
