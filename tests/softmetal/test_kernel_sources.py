"""The kernels as source: each file compiles by itself, and every kernel that is launched exists."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "metal").glob("*.metal"))
KERNEL = re.compile(r"^(?:\[\[.*\]\] )?kernel void (\w+)\(", re.MULTILINE)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_each_file_compiles_with_strict_address_spaces(source):
    if shutil.which("clang++-19") is None:
        pytest.skip("there is no clang 19")
    done = subprocess.run(
        [sys.executable, "-m", "mslc", source, "--check"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests" / "softmetal")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == KERNEL.findall(source.read_text("utf-8"))


def test_launches_and_kernels_name_each_other():
    kernels = {name for path in SOURCES for name in KERNEL.findall(path.read_text("utf-8"))}
    launches = "".join(p.read_text("utf-8") for p in (ROOT / "cpp/device/gpu").glob("*.cpp"))
    launched = set(re.findall(r'"(\w+)",? (?:constants|down|\{\})|[?:] "(\w+)"', launches))
    assert {name for pair in launched for name in pair if name} == kernels
