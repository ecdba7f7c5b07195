"""How much memory the system has to give to this process."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_UNLIMITED = 1 << 60  # version 1 writes a number near 2^63 for no limit


def total_memory() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory(root: Path = Path("/")) -> int:
    """Bytes this process can still use: what the system has to give, within its control groups.

    `root` is the directory below which `proc` and `sys` lie. Where the system does not tell, the
    answer is the physical memory.
    """
    try:
        fields = (root / "proc/meminfo").read_text("ascii").split()
        free = int(fields[fields.index("MemAvailable:") + 1]) * 1024
    except (OSError, ValueError):
        free = total_memory()
    rooms = [limit - used for limit, used in _limits(root)]
    return max(0, min([free, *rooms]))


def memory_limit(root: Path = Path("/")) -> int | None:
    """The tightest limit of this process's control groups in bytes, or None without one."""
    return min((limit for limit, _used in _limits(root)), default=None)


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of each control group that holds this process and has a limit.

    A limit binds all groups below it. Clean pages of files count as unused: the kernel drops them
    before it refuses memory.
    """
    for directory, names in _groups(root):
        limit = _read_int(directory / names[0])
        used = _read_int(directory / names[1])
        if limit is not None and used is not None and limit < _UNLIMITED:
            yield limit, used - _file_pages(directory / "memory.stat")


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            bases = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
            names = ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            bases = [root / "sys/fs/cgroup/memory"]
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        relative = PurePosixPath(path).relative_to("/")
        for base in bases:
            for group in (relative, *relative.parents):
                yield base / group, names


def _file_pages(stat: Path) -> int:
    try:
        fields = dict(line.split() for line in stat.read_text("ascii").splitlines())
    except (OSError, ValueError):
        return 0
    # Version 1 counts a group's own pages apart from those of the groups below it.
    kinds = ("inactive_file", "active_file")
    return sum(int(fields.get(f"total_{kind}", fields.get(kind, 0))) for kind in kinds)


def _read_int(path: Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
