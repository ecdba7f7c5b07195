"""What a model did and what it holds: the counters of a run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict


class Counters(TypedDict):
    """What a model counted since it was made; times in seconds, sizes in bytes."""

    tokens: int
    passes: int
    hits: int
    misses: int
    evictions: int
    bytes_read: int
    read_seconds: float
    fill_seconds: float
    exposed_read_seconds: float
    advice_calls: int
    advice_bytes: int
    mix_seconds: float
    router_wait_seconds: float
    routed_seconds: float
    head_seconds: float
    eager_commits: int
    all_hit_layers: int
    plans_skipped: int
    slots: int
    state_bytes: int


_COUNTED = tuple(key for key in Counters.__annotations__ if key not in ("slots", "state_bytes"))


@dataclass(frozen=True)
class Memory:
    """Resident memory of this process in bytes, split by owner.

    `own` is anonymous memory: expert slots, keys and values, scratch, Python. `mapped` is clean
    file memory, such as the common weights, which the system may drop and read again. `peak_own`
    and `peak_mapped` are the most that was seen after any pass of the model, `peak` the highest
    sum of the two at any time. All are None where the system does not tell.
    """

    own: int | None
    mapped: int | None
    peak_own: int | None
    peak_mapped: int | None
    peak: int | None


@dataclass(frozen=True)
class Report:
    """Counters of a model since it was loaded. Times are in seconds.

    tokens, passes: prompt and answer tokens computed, and the passes they took.
    hits, misses, evictions: experts found in a slot, read from disk, and dropped for another.
    bytes_read: bytes of experts read from the layer files.
    read_seconds: summed over reads, which overlap each other and the device's work.
    fill_seconds: from the start of each token's or tile's reads to the end of the last of them.
    exposed_read_seconds: the part of fill_seconds that the host or the device stood still for.
    advice_calls, advice_bytes: ranges of layer files, and their bytes, that the system was told of
        before they were read.
    mix_seconds, routed_seconds, head_seconds: the host's time to encode a layer's first part, to
        plan and encode its routed experts, and to run the head.
    router_wait_seconds: what the host waited for the device to choose experts.
    eager_commits: routed experts of a token and layer that were committed to the device before
        their reads had landed.
    all_hit_layers, plans_skipped: layers of a token whose experts the device found in their slots
        by itself, and those for which the host planned nothing.
    slots: expert slots a layer; 0 if the layer files are mapped.
    state_bytes: bytes of keys, values and recurrent states.
    """

    tokens: int
    passes: int
    hits: int
    misses: int
    evictions: int
    bytes_read: int
    read_seconds: float
    fill_seconds: float
    exposed_read_seconds: float
    advice_calls: int
    advice_bytes: int
    mix_seconds: float
    router_wait_seconds: float
    routed_seconds: float
    head_seconds: float
    eager_commits: int
    all_hit_layers: int
    plans_skipped: int
    slots: int
    state_bytes: int
    memory: Memory

    @property
    def hit_rate(self) -> float:
        """Share of expert requests that found a slot; 0 before the first."""
        return self.hits / max(1, self.hits + self.misses)

    @property
    def overlapped_read_seconds(self) -> float:
        """The part of `fill_seconds` in which the host had other work or waited for the device."""
        return max(0.0, self.fill_seconds - self.exposed_read_seconds)

    def since(self, earlier: "Report") -> "Report":
        """What was counted after an earlier report of the same model."""
        return replace(self, **{k: getattr(self, k) - getattr(earlier, k) for k in _COUNTED})


def process_memory(peak_own: int = 0, peak_mapped: int = 0) -> Memory:
    """The resident memory of this process, as the kernel counts it, and peaks seen before."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return Memory(None, None, None, None, None)
    fields = dict(line.split(":", 1) for line in lines if ":" in line)

    def size(key: str) -> int:
        return int(fields[key].split()[0]) * 1024

    own, mapped = size("RssAnon"), size("RssFile")
    return Memory(own, mapped, max(own, peak_own), max(mapped, peak_mapped), size("VmHWM"))


def size(count: int) -> str:
    """A number of bytes for people, in powers of 1000."""
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"
