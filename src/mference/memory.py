"""How much memory this process may use, and how many expert slots that buys."""

import os
from pathlib import Path
from typing import Literal

RUNGS = (8, 16, 24, 32, 64, 96, 128)
"""The slot counts a layer may have, besides one for each expert."""

GIB = 1 << 30

HEADROOM = 2 * GIB
"""Left free by the automatic rule: state, scratch, and the pages of the mapped common weights."""

Slots = int | Literal["auto", "resident"]


def _read_int(path: str) -> int | None:
    try:
        text = Path(path).read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def available_memory() -> int:
    """Bytes this process can still use: what the system has to give, within its control group."""
    try:
        fields = Path("/proc/meminfo").read_text("ascii").split()
        free = int(fields[fields.index("MemAvailable:") + 1]) * 1024
    except (OSError, ValueError):
        return total_memory()
    for limit, usage in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ):
        bound, used = _read_int(limit), _read_int(usage)
        if bound is not None and used is not None:
            free = min(free, max(0, bound - used))
    return free


def total_memory() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def auto_slots(
    device: str,
    family: str,
    memory: int,
    *,
    layers: int = 0,
    experts: int = 0,
    stride: int = 0,
) -> int:
    """The slots a layer gets when the user does not say.

    Args:
        device: `metal` follows the reference system's rule: 96 slots for Qwen 3.6 from 24 GiB of
            memory, 32 from 16 GiB, otherwise 16. `cpu` keeps every expert once read where the
            whole pool and `HEADROOM` fit, else the largest rung that fits, and at least 16.
        family: the family's name as the manifest writes it.
        memory: bytes; physical memory for `metal`, available memory for `cpu`.
        layers: layers with routed experts (`cpu` only).
        experts: experts of a layer (`cpu` only).
        stride: bytes of one expert (`cpu` only).
    """
    if device == "metal":
        if family == "qwen36":
            return 96 if memory >= 24 * GIB else 32 if memory >= 16 * GIB else 16
        return 16
    budget = max(0, memory - HEADROOM)
    fitting = [n for n in (*RUNGS, experts) if n <= experts and n * layers * stride <= budget]
    return min(experts, max([16, *fitting]))
