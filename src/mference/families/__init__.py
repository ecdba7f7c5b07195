"""The models this package knows: families (code paths) and pinned entries (checkpoints).

A new family is one new file here, listed in `FAMILIES`, with its pin in `pins.py`.
"""

from mference.errors import InstallError, UnsupportedModel
from mference.families import (
    deepseek_v4_flash,
    gemma4,
    inkling_small,
    maple,
    qwen36,
    qwen38,
)
from mference.families.arch import Arch
from mference.families.family import Family, Footprint, SourceRules
from mference.families.pins import ENTRIES, PinnedEntry

__all__ = [
    "ENTRIES",
    "FAMILIES",
    "Arch",
    "Family",
    "Footprint",
    "PinnedEntry",
    "SourceRules",
    "check_runnable",
    "entry_by_model_id",
    "pinned_entry",
    "source_rules",
    "supported_entries",
    "supported_names",
]

FAMILIES: dict[str, Family] = {
    module.FAMILY.name: module.FAMILY
    for module in (gemma4, qwen36, qwen38, deepseek_v4_flash, inkling_small, maple)
}


def supported_entries() -> tuple[PinnedEntry, ...]:
    """The entries this version can install and run."""
    return tuple(e for e in ENTRIES.values() if FAMILIES[e.family].runnable)


def pinned_entry(name: str) -> PinnedEntry:
    """The entry of that name. Raises `InstallError` naming the supported ones if there is none."""
    if name not in ENTRIES:
        raise InstallError(f"There is no model named '{name}'. Supported: {supported_names()}.")
    return ENTRIES[name]


def entry_by_model_id(model_id: str) -> PinnedEntry | None:
    """The entry whose installs carry this `modelID`, if any."""
    return next((e for e in ENTRIES.values() if e.model_id == model_id), None)


def check_runnable(family: str, what: str) -> None:
    """Check that this version can run a family.

    Raises `UnsupportedModel`, naming `what` was asked for and what is supported instead.
    """
    if not FAMILIES[family].runnable:
        raise _unsupported(family, what)


def source_rules(family: str, what: str) -> SourceRules:
    """How the sources of a family are read, whether or not this version can run it.

    Raises `UnsupportedModel`, as `check_runnable` does, while that is not known.
    """
    rules = FAMILIES[family].rules
    if rules is None:
        raise _unsupported(family, what)
    return rules


def supported_names() -> str:
    """The names of the supported entries, for messages."""
    return ", ".join(entry.name for entry in supported_entries())


def _unsupported(family: str, what: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{what} needs the model family '{family}', which this version of mference cannot "
        f"run yet. Supported: {supported_names()}."
    )
