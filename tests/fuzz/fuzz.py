"""Fuzzes one target with libFuzzer's engine: `python -m tests.fuzz.fuzz TARGET [options]`.

Options are libFuzzer's, and directories of further inputs. A finding is written to the working
directory; kept as `tests/fuzz/findings/TARGET/NAME`, it becomes a test.
"""

import gc
import sys
import tempfile
from pathlib import Path
from types import FunctionType

import atheris

from tests.fuzz.targets import TARGETS


def instrument() -> None:
    """Count coverage in every function of the package.

    Instrumenting at import would miss an editable install, whose loader is its own.
    """
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and (found.__module__ or "").startswith("mference."):
            atheris.instrument_func(found)


def main() -> None:
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="mference-seeds-") as seeds:
        for i, seed in enumerate(target.seeds()):
            (Path(seeds) / f"{i:04}").write_bytes(seed)
        instrument()
        atheris.Setup([sys.argv[0], *options, seeds], target.run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
