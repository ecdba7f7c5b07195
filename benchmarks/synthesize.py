"""Installs a full-size model with random weights, without a download.

    python benchmarks/synthesize.py OUTPUT.gturbo [--family gemma4] [--layers N]

The checkpoint exists only as a rule: the installer's plan asks for byte ranges, and each range is
made when it is asked for. So the real installer and writer run, in the memory and the disk space of
a real install. The weights are uniform codes of unit row norm.

Random weights route wrongly unless they are treated. Without a mean no two tokens share more than
chance, and with one, what all tokens have in common grows from layer to layer, until every token
chooses the same experts: each family's file in `imagined/` says how it finds the middle.
`benchmarks/routing.py` shows what comes of it. The tokenizer is the demo model's: its ids are
valid, the text is noise.
"""

import argparse
from pathlib import Path

from imagined import MODELS
from imagined.source import ImaginedSource

import mference
from mference.families import pinned_entry
from mference.installer.installer import carry_out
from mference.installer.paths import prepared_paths
from mference.installer.run import Run


def layer_count(text: str) -> int:
    """A number of layers from the command line, at least 1."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("a model has at least 1 layer")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--family", choices=MODELS, default="gemma4")
    parser.add_argument("--layers", type=layer_count, help="fewer than all make a smaller model")
    options = parser.parse_args()
    model = MODELS[options.family]
    entry = pinned_entry(model.entry)
    layers = options.layers or entry.arch.integer("numLayers")
    if layers > entry.arch.integer("numLayers"):
        parser.error(f"{model.entry} has {entry.arch['numLayers']} layers, not {layers}")
    done = -1

    def report(progress: mference.Progress) -> None:
        nonlocal done
        percent = 100 * progress.done // max(1, progress.total)
        if percent != done:
            done = percent
            print(f"\r{progress.phase} {percent:3d} %", end="", flush=True)

    source = ImaginedSource(model, entry.arch, layers)
    run = Run(source, entry, prepared_paths(options.output), allow_unpinned=True, report=report)
    result = carry_out(run)
    print(f"\r{result.path}: {result.bytes:,} bytes in {result.seconds:.0f} s")
    experts = sorted((result.path / "packed_experts").glob("layer_*.bin"))
    assert [file.stat().st_size for file in experts] == [model.layer_bytes] * layers
    if layers == entry.arch.integer("numLayers"):
        assert (result.path / "model_weights.bin").stat().st_size == model.common_bytes


if __name__ == "__main__":
    main()
