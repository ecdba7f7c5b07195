"""What it is worth that the device looks cached experts up by itself.

    python benchmarks/slot_map.py MODEL [--slots 64 128] [--rounds 7] [--device cpu]

Two copies of the model, one with a map of slots and one without, write the same tokens in turn, a
stretch each, once their caches are warm. The ratio is the median over the pairs of stretches; below
one the map is faster. `all hit` is the share of layers whose experts were all cached: only there
can the map save anything.
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


def row(install: Install, device: Device, slots: Slots, rounds: int) -> str:
    """The line of one setting."""
    vocabulary = install.manifest.arch.integer("vocabSize")
    layers = install.manifest.arch.integer("numLayers")
    tokens = np.random.default_rng(1).integers(200, vocabulary, WARM_UP + STRETCH * (rounds + 1))
    cores = [load(install, device, slots, setting) for setting in "01"]
    for core in cores:
        stretch(core, tokens[:WARM_UP])
    before = cores[1].counters()["all_hit_layers"]
    seconds: list[list[float]] = [[], []]
    for i in range(rounds):
        piece = tokens[WARM_UP + STRETCH * i :][:STRETCH]
        for which in (0, 1) if i % 2 else (1, 0):
            seconds[which].append(stretch(cores[which], piece))
    share = (cores[1].counters()["all_hit_layers"] - before) / (rounds * STRETCH * layers)
    without, with_map = (1000 * statistics.median(s) / STRETCH for s in seconds)
    ratios = sorted(b / a for a, b in zip(*seconds, strict=True))
    return (
        f"| {device} | {slots} | {share:.0%} | {without:.2f} | {with_map:.2f} | "
        f"{statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--slots", nargs="+", default=[16, 64], type=parse_slots)
    parser.add_argument("--device", nargs="+", default=["cpu"], choices=built_devices())
    parser.add_argument("--rounds", type=int, default=7)
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
