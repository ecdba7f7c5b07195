#!/usr/bin/env bash
# Builds the core with the PTX device into build/ptx/site, from nothing but what is here and .whl/.
# Called by run.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
site=build/ptx/site

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
"$python" -c 'from mference import _core; print(_core.__file__, _core.ptx_device(".ptx"))'
