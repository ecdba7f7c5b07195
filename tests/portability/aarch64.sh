#!/usr/bin/env bash
# Builds the aarch64 wheel and tests it under user-mode emulation: an arm64 Python from Debian with the
# wheel and its dependencies, the device's tests and the demo's answers, and the logits' bytes, which
# must be those of this machine's own build.
# Needs qemu-user and mmdebstrap, and a Python of the version that Debian 12 has (3.11).
# Usage: tests/portability/aarch64.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1
home=build/aarch64

"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
  { echo "the arm64 Python is Debian 12's 3.11: run this with PYTHON=python3.11" >&2; exit 1; }
tools/wheel.sh "$python" aarch64

if [ ! -e "$home/installed" ]; then
  rm -rf "$home"
  "$python" -m venv "$home/venv"
  mmdebstrap --quiet --variant=extract --architectures=arm64 \
    --include=python3-minimal,libpython3-stdlib,libstdc++6 bookworm "$home/root"
  touch "$home/installed"
fi
rm -rf "$home/site"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check --target "$home/site" \
  --python-version 3.11 --implementation cp --only-binary=:all: \
  --platform manylinux_2_28_aarch64 --platform manylinux2014_aarch64 \
  dist/*-cp311-*_aarch64.whl 'pytest>=8' hypothesis

emulated() {
  PYTHONPATH=$PWD/$home/site:$PWD OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 \
    qemu-aarch64 -L "$home/root" "$home/root/usr/bin/python3.11" "$@"
}
emulated -m pytest -q -p no:cacheprovider -m "not slow" tests/base tests/device
emulated -m pytest -q -p no:cacheprovider tests/model/test_demo_model.py -k answer_equals

ours=$(PYTHONPATH=. .venv/bin/python tests/portability/digest.py)
theirs=$(emulated tests/portability/digest.py)
echo "$ours" "$theirs"
[ "$(printf '%s\n%s\n' "$ours" "$theirs" | cut -d' ' -f2 | sort -u | wc -l)" = 1 ] ||
  { echo "the demo's logits differ between instruction sets" >&2; exit 1; }
