"""Memory: what there is, what a model needs, and how many expert slots a budget buys."""

from mference.memory.budget import choose_slots, parse_bytes, rungs
from mference.memory.forecast import (
    MemoryForecast,
    footprint_of,
    forecast_memory,
    installed_footprint,
)
from mference.memory.slots import RUNGS, Slots, auto_slots
from mference.memory.system import available_memory, memory_limit, total_memory

__all__ = [
    "RUNGS",
    "MemoryForecast",
    "Slots",
    "auto_slots",
    "available_memory",
    "choose_slots",
    "footprint_of",
    "forecast_memory",
    "installed_footprint",
    "memory_limit",
    "parse_bytes",
    "rungs",
    "total_memory",
]
