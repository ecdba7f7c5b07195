"""What this machine is: processor, memory, disk."""

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mference import _core
from mference.devices import built_devices, open_device
from mference.errors import DeviceError
from mference.memory import available_memory, memory_limit, total_memory


@dataclass(frozen=True)
class Machine:
    """The machine as this process may use it; sizes in bytes.

    `cores` are the processors this process may run on, `isas` the instruction sets that have
    kernels here, best last. `memory_limit` is a control group's, None without one. `disk_free` is
    what the file system of `disk_path` has left.
    """

    system: str
    processor: str
    cores: int
    isas: tuple[str, ...]
    devices: tuple[str, ...]
    memory: int
    memory_available: int
    memory_limit: int | None
    disk_path: str
    disk_free: int


def inspect_machine(place: Path) -> Machine:
    """Describe this machine; `place` is where installs would go, or lies above it."""
    place = _existing(place)
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=_cores(),
        isas=tuple(_core.cpu_isas()),
        devices=tuple(_device_names()),
        memory=total_memory(),
        memory_available=available_memory(),
        memory_limit=memory_limit(),
        disk_path=str(place),
        disk_free=shutil.disk_usage(place).free,
    )


def _device_names() -> Iterator[str]:
    for name in built_devices():
        try:
            yield open_device(name)[1].name
        except DeviceError as error:
            yield f"no {name}: {error}"


def _existing(place: Path) -> Path:
    place = place.absolute()
    return next(path for path in (place, *place.parents) if path.exists())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
