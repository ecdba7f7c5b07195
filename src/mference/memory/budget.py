"""A budget of bytes: parsing it, and the slots it buys."""

import math
import re
from typing import Literal

from mference.errors import ConfigError, DeviceError, MferenceError
from mference.families import Arch, Footprint
from mference.memory.forecast import forecast_memory
from mference.memory.slots import RUNGS, Slots, auto_slots
from mference.memory.system import total_memory
from mference.report import size
from mference.store.directory import page_rounded

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS |= {f"{_letter}b": 1000**_power, f"{_letter}ib": 1024**_power}


def parse_bytes(value: int | str) -> int:
    """A number of bytes: a whole number, or a text such as `6GiB`, `6.5 GB` or `500MiB`.

    Raises:
        ConfigError: it is neither, or not positive.
    """
    count = 0.0
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value, re.ASCII)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match and unit:
            count = float(match[1]) * unit
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    if not (math.isfinite(count) and count >= 1):
        raise ConfigError(
            f"memory {value!r}: give bytes as a whole number or with a unit, such as 6GiB, 6GB or "
            "500MiB"
        )
    return int(count)


def rungs(arch: Arch) -> list[int]:
    """The slot counts that make sense for a model: those that hold a token's experts, and all."""
    experts, k = arch.integer("numExperts"), arch.integer("topKExperts")
    return [n for n in RUNGS if max(2, k) <= n < experts] + ([experts] if experts else [])


def choose_slots(
    slots: Slots,
    arch: Arch,
    footprint: Footprint,
    *,
    context: int,
    chunk: int,
    available: int,
    budget: int | None = None,
    default: int | None = None,
    device: str = "cpu",
) -> int | Literal["resident"]:
    """The slots of a model that is about to be loaded, once its memory is known to suffice.

    Args:
        slots: what the user asked for.
        arch: the model's architecture.
        footprint: its sizes.
        context: tokens of the state.
        chunk: rows of a prefill chunk.
        available: bytes that the system has to give beyond what this process holds.
        budget: most bytes of the process's own memory, as `MemoryForecast.own` counts them;
            `auto` then takes the most slots that keep within it.
        default: slots that `auto` takes without a budget, instead of those of `auto_slots`.
        device: what will compute; `auto` has a rule for each.

    Raises:
        ConfigError: the budget does not suffice; says how much would.
        DeviceError: what is available does not suffice.
    """

    def shortage(choice: Slots) -> MferenceError | None:
        need = forecast_memory(arch, footprint, choice, context=context, chunk=chunk)
        what = f"{choice} expert slots and a context of {context} tokens need {size(need.own)}"
        if choice == "resident":
            what = what.replace("resident expert slots", "resident experts")
        if budget is not None and need.own > budget:
            return ConfigError(
                f"a memory budget of {size(budget)} is too small: {what} of own memory; give at "
                f"least {-(-need.own >> 20)}MiB, or choose fewer slots or a smaller context"
            )
        if need.model > available:
            return DeviceError(
                f"not enough memory: {what} of own memory, {size(need.model)} more than this "
                f"process has, and {size(available)} is available; choose fewer slots or a "
                "smaller context"
            )
        return None

    if slots != "auto":
        if error := shortage(slots):
            raise error
        return slots
    choices = rungs(arch)
    if budget is None:
        choice = default or auto_slots(
            device,
            arch.family,
            total_memory() if device == "metal" else available,
            layers=footprint.expert_layers,
            experts=arch.integer("numExperts"),
            stride=page_rounded(footprint.expert_bytes),
        )
        choices = [*(n for n in choices if n < choice), choice]
    for choice in reversed(choices):
        if not shortage(choice):
            return choice
    raise shortage(choices[0]) or AssertionError
