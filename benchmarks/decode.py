"""Prefill and decode speed of an installed model, by slots, in one run.

    python benchmarks/decode.py MODEL [--slots 16 resident] [--device cpu metal]

Tokens are drawn at random, so a synthetic model does as well as a real one where it routes like one
(`benchmarks/routing.py` shows that). Decode is the median over tokens. `own` is the most anonymous
memory of the process after any token, `mapped` the most of file pages. Reads are buffered: on a
machine with memory to spare they come from the page cache, and the table says nothing about a disk.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from mference.cli.options import parse_slots
from mference.cli.output import size
from mference.devices import Device, built_devices
from mference.engine import build_core
from mference.memory import Slots
from mference.store import Install, open_install

WARM_UP = 5


def row(
    install: Install, device: Device, slots: Slots, prompt: int, tokens: int, threads: int
) -> str:
    """Runs one setting; its line of the table."""
    rng = np.random.default_rng(1)
    vocabulary = install.manifest.arch.integer("vocabSize")
    core = build_core(install, device=device, slots=slots, context=4096, threads=threads)
    core.greedy(rng.integers(200, vocabulary, 128))  # opens every layer
    core.rewind(0)
    start = time.perf_counter()
    core.greedy(rng.integers(200, vocabulary, prompt))
    prefill = prompt / (time.perf_counter() - start)
    times = []
    before = core.counters()
    for i in range(WARM_UP + tokens):
        if i == WARM_UP:
            before = core.counters()
        start = time.perf_counter()
        core.greedy(rng.integers(200, vocabulary, 1))
        times.append(time.perf_counter() - start)
    after = core.counters()
    hits, misses = after["hits"] - before["hits"], after["misses"] - before["misses"]
    read = (after["bytes_read"] - before["bytes_read"]) / tokens
    own, mapped = core.memory_peak()
    decode = 1 / statistics.median(times[WARM_UP:])
    return (
        f"| {device} | {slots} | {prefill:.1f} | {decode:.1f} | {hits / (hits + misses):.0%} | "
        f"{size(int(read))} | {size(own)} | {size(mapped)} |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--slots", nargs="+", default=[16, "resident"], type=parse_slots)
    parser.add_argument("--device", nargs="+", default=["cpu"], choices=built_devices())
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    install = open_install(
        options.model, policy="trusted-receipt", allow_unpinned=True, warn=lambda _line: None
    )
    print(
        "| device | slots | prefill tokens/s | decode tokens/s | found in slots | read a token |",
        end="",
    )
    print(" own | mapped |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for device in options.device:
        for slots in options.slots:
            line = row(install, device, slots, options.prompt, options.tokens, options.threads)
            print(line, flush=True)


if __name__ == "__main__":
    main()
