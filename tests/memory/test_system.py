"""What the system has to give, within control groups of both versions."""

from pathlib import Path

import pytest

from mference.memory import available_memory, memory_limit, total_memory

GIB = 1 << 30


def write(root: Path, **files: str) -> Path:
    """Writes files below a stand-in for `/`; `__` in a name stands for `/`."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def root(tmp_path):
    return write(tmp_path, proc__meminfo=f"MemFree: 1 kB\nMemAvailable: {8 * GIB // 1024} kB\n")


def group(root: Path, directory: str, *, limit: object, used: int, stat: str, version: int) -> None:
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        2: ("memory.max", "memory.current"),
    }[version]
    place = root / directory
    place.mkdir(parents=True, exist_ok=True)
    (place / names[0]).write_text(f"{limit}\n")
    (place / names[1]).write_text(f"{used}\n")
    (place / "memory.stat").write_text(stat)


def test_without_control_groups_the_system_decides(root):
    assert available_memory(root) == 8 * GIB
    assert memory_limit(root) is None


@pytest.mark.parametrize(
    ("version", "line", "base", "stat"),
    [
        (1, "4:memory:/jobs/mine\n", "memory", "total_inactive_file {}\ninactive_file 0\n"),
        (2, "0::/jobs/mine\n", ".", "anon 5\nactive_file {}\n"),
        (2, "4:cpu:/\n0::/jobs/mine\n", "unified", "inactive_file {}\n"),
    ],
)
def test_a_nested_group_limits_what_is_available(root, version, line, base, stat):
    write(root, proc__self__cgroup=line)
    group(
        root, f"sys/fs/cgroup/{base}/jobs/mine",
        limit=4 * GIB, used=3 * GIB, stat=stat.format(2 * GIB), version=version,
    )  # fmt: skip
    # Of the 3 GiB in use 2 are clean pages of files, which give way.
    assert available_memory(root) == 3 * GIB
    assert memory_limit(root) == 4 * GIB


def test_the_tightest_group_above_counts(root):
    write(root, proc__self__cgroup="0::/jobs/mine\n")
    group(root, "sys/fs/cgroup/jobs", limit=2 * GIB, used=GIB, stat="", version=2)
    group(root, "sys/fs/cgroup/jobs/mine", limit=6 * GIB, used=0, stat="", version=2)
    assert available_memory(root) == GIB
    assert memory_limit(root) == 2 * GIB


@pytest.mark.parametrize(("version", "limit"), [(1, 2**63 - 4096), (2, "max")])
def test_a_group_without_a_limit_limits_nothing(root, version, limit):
    write(root, proc__self__cgroup="4:memory:/a\n0::/a\n")
    base = "sys/fs/cgroup/memory/a" if version == 1 else "sys/fs/cgroup/a"
    group(root, base, limit=limit, used=5, stat="", version=version)
    assert available_memory(root) == 8 * GIB
    assert memory_limit(root) is None


def test_an_exhausted_group_has_nothing_left(root):
    write(root, proc__self__cgroup="0::/\n")
    group(root, "sys/fs/cgroup", limit=GIB, used=2 * GIB, stat="", version=2)
    assert available_memory(root) == 0


def test_this_machine_has_memory():
    assert 0 < available_memory() <= total_memory()
