"""Speed of the embedded model by slots and instruction set, in one run.

    python benchmarks/demo_model.py [--rounds 5]

Every setting runs once a round, in turn, so that a busy moment of the machine hits all of them; the
table gives medians. Prefill takes a prompt of 1,024 tokens in chunks of 128; decode takes 64 tokens
behind it. The model is tiny: it shows the cost of streaming and of the host's part, not of weights.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import mference
from mference import _core
from mference.engine import build_core
from mference.memory import Slots
from mference.store import open_install

PROMPT = 1024
ANSWER = 64
SLOTS: tuple[Slots, ...] = (8, 16, 32, 64, "resident")


@dataclass
class Setting:
    """One row of the table, and what was measured for it: tokens a second."""

    isa: str
    slots: Slots
    core: _core.Model
    prefill: list[float] = field(default_factory=list)
    decode: list[float] = field(default_factory=list)

    def run(self, prompt: np.ndarray) -> None:
        """Prefill and decode once, and note both speeds."""
        self.core.rewind(0)
        start = time.perf_counter()
        token = self.core.greedy(prompt)
        middle = time.perf_counter()
        for _ in range(ANSWER):
            token = self.core.greedy([token])
        end = time.perf_counter()
        self.prefill.append(PROMPT / (middle - start))
        self.decode.append(ANSWER / (end - middle))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    prompt = np.random.default_rng(1).integers(1000, 8000, PROMPT, dtype=np.int32)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "demo.gturbo"
        mference.install(output=path, entry="demo")
        install = open_install(path)
        settings = [
            Setting(isa, slots, build_core(install, isa=isa, slots=slots))
            for isa in _core.cpu_isas()
            for slots in SLOTS
        ]
        for setting in settings:
            setting.run(prompt)
        for setting in settings:
            setting.prefill.clear()
            setting.decode.clear()
        for _ in range(rounds):
            for setting in settings:
                setting.run(prompt)
    print("| instruction set | slots | prefill tokens/s | decode tokens/s |")
    print("| --- | ---: | ---: | ---: |")
    for s in settings:
        prefill, decode = statistics.median(s.prefill), statistics.median(s.decode)
        print(f"| {s.isa} | {s.slots} | {prefill:,.0f} | {decode:,.0f} |")


if __name__ == "__main__":
    main()
