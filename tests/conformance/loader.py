"""Reads conformance cases: input to expected result, one JSON file an area.

The project's own cases lie in `cases/`. Every directory named in `MFERENCE_CONFORMANCE_DIRS`
(colon separated) is read as well; a named directory that does not exist is an error.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

OWN_CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One case of one kind, with the material its file shares between cases."""

    area: str
    kind: str
    id: str
    about: str
    given: dict[str, Any]
    expect: dict[str, Any]
    source: str
    shared: dict[str, Any] = field(repr=False)


def directories() -> list[Path]:
    named = [Path(d) for d in os.environ.get("MFERENCE_CONFORMANCE_DIRS", "").split(":") if d]
    missing = [str(d) for d in named if not d.is_dir()]
    if missing:
        raise FileNotFoundError(f"MFERENCE_CONFORMANCE_DIRS names missing directories: {missing}")
    return [OWN_CASES, *named]


@cache
def _read(area: str) -> tuple[Case, ...]:
    def read() -> Iterator[Case]:
        for directory in directories():
            path = directory / f"{area}.json"
            if not path.is_file():
                continue
            document = json.loads(path.read_text("utf-8"))
            shared = {k: v for k, v in document.items() if k not in ("schema", "area", "cases")}
            for c in document["cases"]:
                yield Case(
                    area, c["kind"], c["id"], c.get("about", ""), c["given"], c["expect"],
                    directory.name, shared,
                )  # fmt: skip

    return tuple(read())


def cases(area: str, *kinds: str) -> list[Any]:
    """Parameters for `pytest.mark.parametrize("case", ...)`: every case of these kinds."""
    chosen = [c for c in _read(area) if c.kind in kinds]
    return [pytest.param(c, id=f"{c.source}-{c.id}") for c in chosen]


def text(value: str | list[Any]) -> str:
    """A case's text: a string, or the concatenation of strings and repeats."""
    if isinstance(value, str):
        return value
    return "".join(p if isinstance(p, str) else p["repeat"] * p["times"] for p in value)


def edited(base: Any, edits: list[dict[str, Any]]) -> Any:
    """A deep copy of `base` with `set` and `drop` edits applied."""
    copy = json.loads(json.dumps(base))
    for edit in edits:
        *path, last = edit["at"]
        node = copy
        for key in path:
            node = node[key]
        if edit["op"] == "set":
            node[last] = edit["to"]
        else:
            del node[last]
    return copy
