"""What a model needs of a machine at each number of expert slots, and whether it is there."""

from dataclasses import dataclass
from typing import Literal

from mference.doctor.machine import Machine
from mference.doctor.measure import ComputeSpeed, DiskSpeed
from mference.doctor.speed import SpeedForecast, cached_share, forecast_speed
from mference.engine import DEMO_SLOTS
from mference.errors import DeviceError
from mference.families import FAMILIES, Arch, Footprint, PinnedEntry
from mference.installer.plan import MAX_CHUNK
from mference.installer.space import required_space
from mference.memory import (
    MemoryForecast,
    choose_slots,
    footprint_of,
    forecast_memory,
    installed_footprint,
    rungs,
)
from mference.report import size
from mference.store import Install
from mference.store.directory import page_rounded

CHUNK = 128
"""Rows of a prefill chunk in chat."""


@dataclass(frozen=True)
class Rung:
    """A model with so many expert slots a layer.

    `problem` says what of it does not fit the machine, and is empty if all does; `speed` is None
    then.
    """

    slots: int | Literal["resident"]
    memory: MemoryForecast
    problem: str
    speed: SpeedForecast | None


@dataclass(frozen=True)
class Need:
    """What one model needs.

    name, title: of the pinned entry, or of the directory.
    runs: whether this version can run it; what follows is a mere forecast otherwise.
    download_bytes, disk_bytes: what an install reads and takes; None for one that is there, and
        where it is not known.
    disk_problem: why it cannot be installed, or empty.
    context: tokens that the state holds.
    auto: the slots that `auto` takes; None if the machine has too little memory.
    rungs: the choices of slots; none for a model without routed experts.
    """

    name: str
    title: str
    runs: bool
    download_bytes: int | None
    disk_bytes: int | None
    disk_problem: str
    context: int
    auto: int | Literal["resident"] | None
    rungs: tuple[Rung, ...]

    @property
    def problem(self) -> str:
        """Why the model cannot be run here by this version, or empty."""
        if not self.runs:
            return "this version cannot run it"
        if self.disk_problem:
            return self.disk_problem
        if self.auto is None:
            least = self.rungs[0]
            return f"{least.slots} expert slots need {size(least.memory.own)} of own memory"
        return ""


def need_of_entry(
    entry: PinnedEntry, machine: Machine, compute: ComputeSpeed, disk: DiskSpeed, *, context: int
) -> Need:
    """What a pinned model needs that is not installed."""
    runs = FAMILIES[entry.family].runnable
    title = entry.note.partition(":")[0]
    if FAMILIES[entry.family].footprint is None:
        return Need(entry.name, title, runs, None, None, "", context, None, ())
    footprint = footprint_of(entry.arch)
    total = entry.installed_bytes
    lacking = ""
    wanted = required_space(total, 0, MAX_CHUNK, entry.reserve_bytes) if total else 0
    if wanted > machine.disk_free:
        lacking = f"needs {size(wanted)} of disk to install, {size(machine.disk_free)} free"
    choices = _choices(entry.arch, footprint, machine, compute, disk, context)
    auto = _auto(entry.arch, footprint, machine, context, embedded=entry.embedded)
    return Need(
        entry.name, title, runs, entry.download_bytes, total, lacking, context, auto, choices
    )


def need_of_install(
    install: Install, machine: Machine, compute: ComputeSpeed, disk: DiskSpeed, *, context: int
) -> Need:
    """What an install needs to run."""
    arch, footprint, entry = install.manifest.arch, installed_footprint(install), install.entry
    title = entry.note.partition(":")[0] if entry else f"unpinned, family {install.family}"
    choices = _choices(arch, footprint, machine, compute, disk, context)
    embedded = entry is not None and entry.embedded
    auto = _auto(arch, footprint, machine, context, embedded=embedded)
    return Need(str(install.path), title, True, None, None, "", context, auto, choices)


def _choices(
    arch: Arch,
    footprint: Footprint,
    machine: Machine,
    compute: ComputeSpeed,
    disk: DiskSpeed,
    context: int,
) -> tuple[Rung, ...]:
    found: list[Rung] = []
    choices: list[int | Literal["resident"]] = [*rungs(arch), "resident"]
    for slots in choices:
        memory = forecast_memory(arch, footprint, slots, context=context, chunk=CHUNK)
        problem = _problem(memory, machine.memory_available)
        speed = None
        if not problem:
            files = _expert_files(arch, footprint)
            speed = forecast_speed(
                arch, footprint, slots, compute, disk,
                position=context // 2,
                cached=cached_share(memory, files, machine.memory_available),
            )  # fmt: skip
        found.append(Rung(slots, memory, problem, speed))
    return tuple(found)


def _problem(memory: MemoryForecast, available: int) -> str:
    if memory.own > available:
        return "own memory"
    # The system would drop their pages and read them again, token after token.
    return "mapped files" if memory.own + memory.mapped > available else ""


def _auto(
    arch: Arch, footprint: Footprint, machine: Machine, context: int, *, embedded: bool
) -> int | Literal["resident"] | None:
    try:
        return choose_slots(
            "auto",
            arch,
            footprint,
            context=context,
            chunk=CHUNK,
            available=machine.memory_available,
            default=DEMO_SLOTS if embedded else None,
        )
    except DeviceError:
        return None


def _expert_files(arch: Arch, footprint: Footprint) -> int:
    blob = page_rounded(footprint.expert_bytes)
    return footprint.expert_layers * arch.integer("numExperts") * blob
