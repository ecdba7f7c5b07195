"""Prints the SHA-256 of the demo model's logits, for every instruction set of this machine.

Whatever compiled the core, and for whatever processor, the lines' digests are equal.
Usage: PYTHONPATH=. python tests/portability/digest.py
"""

import tempfile
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

import mference
from mference import _core
from tests.models import open_core

CUTS = (0, 33, 34, 35, 36, 136, 137, 138, 260, 261, 300)


def digest(install: Path, isa: str) -> str:
    tokens = np.random.default_rng(1).integers(200, 8000, CUTS[-1]).tolist()
    core = open_core(install, context=512, chunk=32, slots=8, threads=2, isa=isa)
    logits = [core.logits(tokens[a:b]) for a, b in pairwise(CUTS)]
    return sha256(np.concatenate(logits).tobytes()).hexdigest()


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        install = Path(scratch) / "demo.gturbo"
        mference.install(output=install, entry="demo")
        for isa in _core.cpu_isas():
            print(isa, digest(install, isa))


if __name__ == "__main__":
    main()
