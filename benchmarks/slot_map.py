"""What it is worth that the device looks cached experts up by itself.

    python benchmarks/slot_map.py MODEL [--slots 64 128] [--rounds 7] [--device cpu]

Two copies of the model, one with a map of slots and one without, write the same tokens in turn, a
stretch each, once their caches are warm; then both are loaded again in the other order. The ratio
is the median over all pairs of stretches; below one the map is faster. `all hit` is the share of
layers whose experts were all cached: only there can the map save anything.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import numpy as np

from mference import _core
from mference.cli.options import parse_slots
from mference.devices import Device, built_devices
from mference.engine import build_core
from mference.memory import Slots
from mference.store import Install, open_install

STRETCH = 24
WARM_UP = 48


def load(install: Install, device: Device, slots: Slots, setting: str) -> _core.Model:
    """A model whose device has a map of slots (`1`) or not (`0`)."""
    os.environ["MFERENCE_SLOT_MAP"] = setting
    return build_core(install, device=device, slots=slots, context=4096)


def stretch(core: _core.Model, tokens: np.ndarray) -> float:
    """Seconds for these tokens, one at a time."""
    start = time.perf_counter()
    for token in tokens:
        core.greedy(token[None])
    return time.perf_counter() - start


def compare(
    install: Install, device: Device, slots: Slots, rounds: int, first: int
) -> tuple[list[list[float]], float]:
    """Milliseconds a token of each stretch, without and with a map, and the share of all hits.

    The model with the setting `first` is loaded first: where its memory lies may favour it.
    """
    arch = install.manifest.arch
    vocabulary, layers = arch.integer("vocabSize"), arch.integer("numLayers")
    tokens = np.random.default_rng(1).integers(200, vocabulary, WARM_UP + STRETCH * rounds)
    cores = {which: load(install, device, slots, str(which)) for which in (first, 1 - first)}
    for core in cores.values():
        stretch(core, tokens[:WARM_UP])
    before = cores[1].counters()["all_hit_layers"]
    times: list[list[float]] = [[], []]
    for i in range(rounds):
        piece = tokens[WARM_UP + STRETCH * i :][:STRETCH]
        for which in (0, 1) if i % 2 else (1, 0):
            times[which].append(1000 * stretch(cores[which], piece) / STRETCH)
    share = (cores[1].counters()["all_hit_layers"] - before) / (rounds * STRETCH * layers)
    return times, share


def row(install: Install, device: Device, slots: Slots, rounds: int) -> str:
    """The line of one setting."""
    runs = [compare(install, device, slots, rounds, first) for first in (0, 1)]
    without, with_map = ([t for times, _ in runs for t in times[which]] for which in (0, 1))
    ratios = sorted(b / a for a, b in zip(without, with_map, strict=True))
    share = statistics.mean(share for _, share in runs)
    return (
        f"| {device} | {slots} | {share:.0%} | {statistics.median(without):.2f} | "
        f"{statistics.median(with_map):.2f} | {statistics.median(ratios):.3f} | "
        f"{ratios[0]:.3f} to {ratios[-1]:.3f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--slots", nargs="+", default=[16, 64], type=parse_slots)
    parser.add_argument("--device", nargs="+", default=["cpu"], choices=built_devices())
    parser.add_argument("--rounds", type=int, default=7, help="pairs for each order of loading")
    options = parser.parse_args()
    install = open_install(
        options.model, policy="trusted-receipt", allow_unpinned=True, warn=lambda _line: None
    )
    print("| device | slots | all hit | ms a token | with a map | ratio | single pairs |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for device in options.device:
        for slots in options.slots:
            print(row(install, device, slots, options.rounds), flush=True)


if __name__ == "__main__":
    main()
