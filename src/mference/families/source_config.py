"""What the readers of source configs share: typed access, layer kinds, the full-size check."""

from collections.abc import Mapping
from typing import Any

from mference.errors import CheckpointError
from mference.families.arch import CORE_FIELDS, EXTENSION_FIELDS, Arch, first_difference
from mference.jsontext import Fields

CONFIG = "config.json"


def config_fields(config: Mapping[str, Any]) -> Fields:
    """A source config, whose readers raise `CheckpointError` (`config_invalid`)."""
    return Fields(config, CONFIG, config_invalid)


def config_invalid(message: str) -> CheckpointError:
    """The error of a config that is missing something or has it wrong."""
    return CheckpointError(message, "config_invalid")


def flag(fields: Fields, key: str) -> bool:
    """A boolean that is false where it is absent."""
    return fields.boolean(key) if key in fields else False


def number(fields: Fields, key: str, default: float) -> float:
    """A number with a default."""
    return fields.number(key) if key in fields else default


def text(fields: Fields, key: str, default: str) -> str:
    """A string with a default."""
    return fields.text(key) if key in fields else default


def layer_kinds(
    fields: Fields, key: str, codes: Mapping[str, int], num_layers: int
) -> tuple[int, ...]:
    """The attention kind of each layer, from names that `codes` maps; others are errors."""
    names = fields.texts(key)
    if len(names) != num_layers:
        fields.fail(f"'{key}' has {len(names)} entries for {num_layers} layers")
    for name in names:
        if name not in codes:
            fields.fail(f"'{key}' has the unknown kind {name!r}; known: {', '.join(codes)}")
    return tuple(codes[name] for name in names)


def check_full_size(fields: Fields, arch: Arch, baseline: Arch) -> Arch:
    """Return `arch`, which must equal the baseline if it has its layers and its hidden size.

    Other shapes are toys, and may be anything. Raises `CheckpointError` (`config_invalid`).
    """
    shape = ("numLayers", "hiddenSize")
    if all(arch[key] == baseline[key] for key in shape):
        check_pinned(fields, arch, baseline)
    return arch


def check_pinned(fields: Fields, arch: Arch, baseline: Arch) -> None:
    """Check that every value is that of the pinned model.

    Raises `CheckpointError` (`config_invalid`), naming the first that differs.
    """
    key = first_difference(arch, baseline, (*CORE_FIELDS, *EXTENSION_FIELDS))
    if key:
        fields.fail(
            f"{key} comes to {arch[key]!r}, the model of this size that is known has "
            f"{baseline[key]!r}. Download the config again"
        )
