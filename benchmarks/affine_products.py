"""Affine products by instruction set at the shapes of Gemma 4 26B-A4B.

For each shape and number of rows every instruction set runs in turn, round after round, so that a
busy moment of the machine hits all of them. A table gives medians, weights and bytes a second, the
ratio to the portable kernels (itself the median of the ratios of each round), and, for one row, the
share of what reading memory alone reaches. Weights do not stay in the cache between passes.

    python benchmarks/affine_products.py [--threads 2] [--rounds 7] [--rows 1 8 128] [--small]
"""

import argparse
import sys
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from mference import _core
from mference._core import ops

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.reference import affine

SHAPES = {
    "attention q": (4096, 2816),
    "attention o, full": (2816, 8192),
    "shared gate": (2112, 2816),
    "shared down": (2816, 2112),
    "expert up": (704, 2816),
    "expert down": (2816, 704),
    "head": (262144, 2816),
}
CACHE = 96 << 20  # bytes a pass must exceed so that every read comes from memory


def matrix_bytes(rows: int, cols: int) -> float:
    return rows * cols * (1 / 2 + 4 / 64)


def read_ceiling(threads: int, size: int = 512 << 20) -> float:
    """Bytes per second of summing a large array with `threads` threads."""
    parts = np.array_split(np.ones(size // 8, np.int64), threads)

    def once() -> float:
        workers = [threading.Thread(target=part.sum) for part in parts]
        start = time.perf_counter()
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        return size / (time.perf_counter() - start)

    return max(once() for _ in range(7))


def measure(
    isas: list[str], threads: int, shape: tuple[int, int], rows: int, rounds: int
) -> dict[str, list[float]]:
    """Seconds a matrix, per round, of each instruction set."""
    rng = np.random.default_rng(1)
    q = affine.random_matrix(rng, *shape)
    weight = ops.Affine(q.weight, q.scales, q.biases)
    x = rng.standard_normal((rows, shape[1])).astype(np.float32)
    # Many rows reuse a matrix so often that where it lies no longer matters.
    copies = max(1, round(CACHE / matrix_bytes(*shape))) if rows < 16 else 1
    devices = {isa: _core.cpu_device(threads, isa) for isa in isas}
    seconds: dict[str, list[float]] = {isa: [] for isa in isas}
    for _ in range(rounds):
        for isa, device in devices.items():
            few = 1 if isa == "portable" else 2
            took = ops.time_project(device, x, weight, copies, few, 2)
            seconds[isa].append(min(took) / copies)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 128])
    parser.add_argument("--small", action="store_true", help="leave the head out")
    arguments = parser.parse_args()
    isas = _core.cpu_isas()
    ceiling = read_ceiling(arguments.threads)
    table = Table(title=f"4-bit products, {arguments.threads} threads, read ceiling "
                  f"{ceiling / 1e9:.1f} GB/s")  # fmt: skip
    for column in ("matrix", "rows", "set", "us", "Gweight/s", "GB/s", "of ceiling", "x portable"):
        table.add_column(column, justify="left" if column in ("matrix", "set") else "right")
    for name, shape in SHAPES.items():
        if name == "head" and arguments.small:
            continue
        for rows in arguments.rows:
            if name == "head" and rows > 1:
                continue
            rounds = measure(isas, arguments.threads, shape, rows, arguments.rounds)
            for isa in isas:
                took = median(rounds[isa])
                ratio = median(p / t for p, t in zip(rounds["portable"], rounds[isa], strict=True))
                rate = matrix_bytes(*shape) / took
                table.add_row(
                    f"{name} {shape[0]}x{shape[1]}", str(rows), isa, f"{took * 1e6:.0f}",
                    f"{rows * shape[0] * shape[1] / took / 1e9:.1f}", f"{rate / 1e9:.1f}",
                    f"{rate / ceiling:.0%}" if rows == 1 else "", f"{ratio:.1f}",
                )  # fmt: skip
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
