"""Times kernels on the PTX device, and checks what they compute: a table.

Warm: what a launch reads is in the caches if it fits them. Cold: 256 MiB of other data were written
in between. Medians of 20, by the GPU's events.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np

from mference import _core
from mference._core import ops

ROOT = Path(__file__).parents[2]
KERNELS = str(ROOT / ".ptx")
HIDDEN = 2816


def matrix(rng, rows: int, cols: int) -> ops.Affine:
    """4 bits in groups of 64, with small scales."""
    scales = (rng.uniform(0.01, 0.03, (rows, cols // 64)).astype(np.float32).view(np.uint32)) >> 16
    weight = rng.integers(0, 256, (rows, cols // 2), np.uint8)
    biases = (scales | 0x8000).astype(np.uint16)
    return ops.Affine(weight, scales.astype(np.uint16), biases, 4, 64)


def product(rows: int, cols: int, tokens: int):
    """Runs a product; the bytes of its matrix and the operations."""

    def run(device):
        rng = np.random.default_rng(rows + tokens)
        x = rng.standard_normal((tokens, cols)).astype(np.float32)
        q = matrix(rng, rows, cols)
        return lambda d=device: ops.project(d, x, q)

    return run, rows * cols // 2 + rows * cols // 64 * 4, 2 * rows * cols * tokens


def head(rows: int):
    def run(device):
        rng = np.random.default_rng(rows)
        x = rng.standard_normal(HIDDEN).astype(np.float32)
        norm = np.full(HIDDEN, 0x3F80, np.uint16)
        q = matrix(rng, rows, HIDDEN)
        return lambda d=device: ops.head_argmax(d, x, norm, q)

    return run, rows * HIDDEN // 2 + rows * HIDDEN // 64 * 4, 2 * rows * HIDDEN


def attention(tokens: int, heads: int, kv: int, dim: int, position: int, window: int):
    def run(device):
        rng = np.random.default_rng(dim)
        q = (rng.standard_normal((tokens, heads, dim)) * 4 / np.sqrt(dim)).astype(np.float32)
        capacity = -(-(position + tokens) // 128) * 128
        keys, values = rng.standard_normal((2, capacity, kv, dim)).astype(np.float16)
        return lambda d=device: ops.attention(d, q, keys, values, position, window)

    seen = min(window, position + 1) if window else position + 1
    return run, 2 * seen * kv * dim * 2, 4 * tokens * seen * heads * dim


def convolution(tokens: int, channels: int):
    def run(device):
        rng = np.random.default_rng(tokens)
        x = rng.standard_normal((tokens, channels)).astype(np.float32)
        weight = np.full((channels, 4), 0x3F80, np.uint16)
        tail = rng.standard_normal((3, channels)).astype(np.float16)
        return lambda d=device: ops.convolution_tail(d, x, weight, tail)[0]

    return run, tokens * channels * 8 + channels * 20, tokens * channels * 8


def delta(tokens: int, key_heads: int, value_heads: int, dim: int):
    def run(device):
        rng = np.random.default_rng(tokens)

        def normal(*shape):
            return rng.standard_normal(shape).astype(np.float32)

        heads = (key_heads * 2 + value_heads) * dim
        given = [normal(tokens, heads), normal(tokens, value_heads), normal(tokens, value_heads)]
        rate = rng.uniform(0.1, 1, value_heads).astype(np.float32)
        z, state = normal(tokens, value_heads, dim), normal(value_heads, dim, dim)
        norm = np.full(dim, 0x3F80, np.uint16)
        given += [rate, normal(value_heads), z, norm, state]
        return lambda d=device: ops.gated_delta(d, *given, key_heads)[0]

    moved = 8 * value_heads * dim * dim + 4 * tokens * (2 * key_heads + 3 * value_heads) * dim
    return run, moved, 8 * tokens * value_heads * dim * dim


CASES = {
    "GEMV 2816 x 2816": product(2816, HIDDEN, 1),
    "GEMV 4096 x 2816": product(4096, HIDDEN, 1),
    "GEMV 262144 x 2816": product(262144, HIDDEN, 1),
    "head argmax 262144 x 2816": head(262144),
    "4 rows, 2816 x 2816": product(2816, HIDDEN, 4),
    "tiles, 128 rows, 2816 x 2816": product(2816, HIDDEN, 128),
    "tiles, 512 rows, 2816 x 2816": product(2816, HIDDEN, 512),
    "decode attention, full, 4096 positions": attention(1, 16, 2, 512, 4095, 0),
    "decode attention, window 1024": attention(1, 16, 8, 256, 4095, 1024),
    "tiled attention, 128 rows, full": attention(128, 16, 2, 512, 3968, 0),
    "convolution, 1 row of 8192": convolution(1, 8192),
    "convolution, 128 rows of 8192": convolution(128, 8192),
    "delta rule, 1 row": delta(1, 16, 32, 128),
    "delta rule, 128 rows": delta(128, 16, 32, 128),
    "delta rule, 1024 rows": delta(1024, 16, 32, 128),
}


def same(got, want) -> float:
    """The largest difference from the CPU device's float32 results, relative to the largest."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def measure(wanted: str) -> list[str]:
    device = _core.ptx_device(KERNELS, timed=True)
    cpu = _core.cpu_device(0, "auto", float32_products=True)
    lines = [
        f"{device.name}; medians of 20 launches.",
        "",
        "| case | kernel | warm, us | cold, us | cold GB/s | cold TFLOP/s | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (prepare, size, operations) in CASES.items():
        if wanted not in name:
            continue
        _core.ptx_times(KERNELS)
        run = prepare(device)
        error = same(run(), run(cpu))
        total = 0.0
        timings = _core.ptx_times(KERNELS)
        for kernel, warm, cold in timings:
            middle = statistics.median(cold)
            total += middle
            last = kernel == timings[-1][0]
            lines.append(
                f"| {name} | {kernel} | {statistics.median(warm):.1f} | {middle:.1f} | "
                + (
                    f"{size / total / 1e3:.0f} | {operations / total / 1e6:.2f} | {error:.1e} |"
                    if last
                    else "| | |"
                )
            )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    given = parser.parse_args()
    text = "\n".join(measure(given.only)) + "\n"
    print(text)
    if given.markdown:
        given.markdown.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
