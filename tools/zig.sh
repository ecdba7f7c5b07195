#!/usr/bin/env bash
# Prints the path of a C++ compiler for a target such as aarch64-linux-gnu.2.17, made from the
# `ziglang` package of PyPI: clang with the headers and libraries of each target, libc++ linked in.
# `ar` and `ranlib` for the target lie beside it.
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
program() {
  printf '#!/bin/sh\nZIG_GLOBAL_CACHE_DIR="%s" exec "%s" %s "$@"\n' "$home/cache" "$zig" "$2" >"$home/$1"
  chmod +x "$home/$1"
}
program "c++-$target" "c++ -target $target"
program ar ar
program ranlib ranlib
echo "$home/c++-$target"
