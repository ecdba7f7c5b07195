"""How many expert slots a layer gets when the user does not say."""

from typing import Literal

from mference.families import FAMILIES

RUNGS = (8, 16, 24, 32, 64, 96, 128)
"""The slot counts a layer may have, besides one for each expert."""

GIB = 1 << 30

HEADROOM = 2 * GIB
"""Left free by the automatic rule: state, scratch, and the pages of the mapped common weights."""

Slots = int | Literal["auto", "resident"]


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
        device: `metal` follows the reference system's rule, which the family has in `metal_slots`.
            `cpu` keeps every expert once read where the whole pool and `HEADROOM` fit, else the
            largest rung that fits, and at least 16.
        family: the family's name as the manifest writes it.
        memory: bytes; physical memory for `metal`, available memory for `cpu`.
        layers: layers with routed experts (`cpu` only).
        experts: experts of a layer (`cpu` only).
        stride: bytes of one expert (`cpu` only).
    """
    if device == "metal":
        return next(n for least, n in FAMILIES[family].metal_slots if memory >= least)
    budget = max(0, memory - HEADROOM)
    fitting = [n for n in (*RUNGS, experts) if n <= experts and n * layers * stride <= budget]
    return min(experts, max([16, *fitting]))
