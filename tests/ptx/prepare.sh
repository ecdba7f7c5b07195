#!/usr/bin/env bash
# What the machine with the GPU lacks, made here: PTX in .ptx/, and wheels for its Python in .whl/.
# Both are to be carried there, beside the tracked files. Needs clang 19 and pip.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

"$python" tests/ptx/compile.py .ptx
rm -rf .whl
platforms=()
for version in 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${version}_x86_64"); done
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
  --python-version 3.12 --implementation cp "${platforms[@]}" --platform manylinux2014_x86_64 \
  -d .whl 'pybind11>=3.0' 'pytest>=8' iniconfig pluggy packaging pygments 'hypothesis>=6.100' \
  sortedcontainers
du -sh .ptx .whl
