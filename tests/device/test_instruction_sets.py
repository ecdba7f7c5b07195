"""Which kernels a machine is given."""

import platform
from pathlib import Path

import pytest

from mference import _core

NEEDS = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
}


@pytest.mark.skipif(
    platform.machine() != "x86_64" or platform.system() != "Linux",
    reason="only Linux on x86-64 says what the processor can",
)
def test_the_instruction_sets_are_those_the_kernel_reports():
    line = next(
        line for line in Path("/proc/cpuinfo").read_text("ascii").splitlines() if "flags" in line
    )
    flags = set(line.split(":")[1].split())
    assert _core.cpu_isas() == [
        "portable", *(isa for isa, needed in NEEDS.items() if needed <= flags)
    ]  # fmt: skip
