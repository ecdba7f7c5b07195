#!/usr/bin/env bash
# Prints the path of a C++ compiler for a target such as aarch64-linux-gnu.2.17, made from the
# `ziglang` package of PyPI: clang with the headers and libraries of each target, libc++ linked in.
# Usage: tools/zig.sh PYTHON TARGET
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 target=$2

home=$PWD/build/zig
if [ ! -e "$home/installed" ]; then
  "$python" -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check 'ziglang==0.17.1' >&2
  touch "$home/installed"
fi
zig=$("$home/venv/bin/python" -c 'import ziglang; print(ziglang.__path__[0])')/zig
compiler=$home/c++-$target
printf '#!/bin/sh\nexec "%s" c++ -target %s "$@"\n' "$zig" "$target" >"$compiler"
chmod +x "$compiler"
echo "$compiler"
