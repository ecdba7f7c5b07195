"""The forecast of `mference doctor` beside a measured run of an install.

    python benchmarks/forecast.py MODEL [--slots 16 resident] [--rounds 3]

Each setting runs in children of its own, one a round, and the table has medians. Memory is what the
model adds to the child's own memory: expert slots, as far as the run filled them, keys and values,
activations. Speed is forecast from measurements made just before the run, twice: with the hit rate
that doctor expects of text, and with the one that the run then had. Layer files leave the page
cache and are read into it again, as far as memory goes; with `--cold` they only leave it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from mference.cli.options import parse_slots
from mference.doctor.measure import measure_compute, measure_disk
from mference.doctor.speed import cached_share, forecast_speed
from mference.engine import build_core
from mference.memory import Slots, available_memory, forecast_memory, installed_footprint
from mference.report import process_memory, size
from mference.store import Install, open_install

WARM_UP = 5
CHUNK = 128


def settle(install: Install, *, cold: bool) -> None:
    """Drop every layer file from the page cache; read it into it again unless `cold`.

    Pages that a writer left there are larger than those of a reader, and are copied faster: no user
    would see that speed twice.
    """
    for layer in range(install.layout.num_layers):
        with install.layer_path(layer).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while not cold and file.read(1 << 24):
                pass


def run(install: Install, slots: Slots, options: argparse.Namespace) -> dict[str, float]:
    """Forecasts and measures one setting."""
    arch, footprint = install.manifest.arch, installed_footprint(install)
    context = options.prompt + WARM_UP + options.tokens
    compute, disk = measure_compute(), measure_disk(install.path, install)
    available = available_memory()
    settle(install, cold=options.cold)
    base = process_memory().own or 0
    rng = np.random.default_rng(1)
    vocabulary = arch.integer("vocabSize")
    core = build_core(install, slots=slots, context=context, chunk=CHUNK)
    core.greedy(rng.integers(200, vocabulary, options.prompt))
    times = []
    before = core.counters()
    for i in range(WARM_UP + options.tokens):
        if i == WARM_UP:
            before = core.counters()
        start = time.perf_counter()
        core.greedy(rng.integers(200, vocabulary, 1))
        times.append(time.perf_counter() - start)
    after = core.counters()
    hits, misses = after["hits"] - before["hits"], after["misses"] - before["misses"]
    memory = process_memory()

    chosen: Slots = after["slots"] or "resident"
    need = forecast_memory(arch, footprint, chosen, context=context, chunk=CHUNK)
    files = footprint.expert_layers * arch.integer("numExperts") * footprint.expert_bytes
    cached = 0.0 if options.cold else cached_share(need, files, available)
    speeds = [
        forecast_speed(
            arch, footprint, chosen, compute, disk,
            position=options.prompt, cached=cached, hit_rate=rate,
        ).tokens_per_second
        for rate in (None, hits / (hits + misses))
    ]  # fmt: skip
    return {
        "added": (memory.own or 0) - base,
        "added forecast": need.model,
        "hits": hits / (hits + misses),
        "tokens": 1 / statistics.median(times[WARM_UP:]),
        "expected": speeds[0],
        "forecast": speeds[1],
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--slots", nargs="+", default=["16", "resident"])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="start with the layer files uncached")
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        install = open_install(
            options.model, policy="trusted-receipt", allow_unpinned=True, warn=lambda _line: None
        )
        print(json.dumps(run(install, parse_slots(options.slots[0]), options)))
        return
    print(
        "| slots | memory added | forecast | ratio | hits | tokens/s | forecast | ratio | "
        "with the hits expected of text |\n| ---: |" + " ---: |" * 8
    )
    flags = [f"--prompt={options.prompt}", f"--tokens={options.tokens}"]
    flags += ["--cold"] if options.cold else []
    for slots in options.slots:
        command = [sys.executable, __file__, str(options.model), "--row", *flags, "--slots", slots]
        rows = [
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(options.rounds)
        ]
        row = {key: statistics.median(r[key] for r in rows) for key in rows[0]}
        ratio = statistics.median(r["forecast"] / r["tokens"] for r in rows)
        print(
            f"| {slots} | {size(round(row['added']))} | {size(round(row['added forecast']))} | "
            f"{row['added forecast'] / row['added']:.2f} | {row['hits']:.0%} | "
            f"{row['tokens']:,.1f} | {row['forecast']:,.1f} | "
            f"{ratio:.2f} | {row['expected']:,.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
