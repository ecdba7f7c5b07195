"""Expands macros and includes. Metal's own headers are empty here: the rewritten source includes
the library that stands for them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from .errors import CompileError

CLANG = os.environ.get("SOFTMETAL_CLANG", "clang++-19")

_HEADERS = [
    "array",
    "atomic",
    "common",
    "compute",
    "geometric",
    "integer",
    "limits",
    "logging",
    "math",
    "matrix",
    "numeric",
    "pack",
    "packing",
    "relational",
    "simdgroup",
    "simdgroup_matrix",
    "stdlib",
    "texture",
    "type_traits",
    "types",
]


def _empty_headers(cache: Path) -> Path:
    """A directory with an empty metal_stdlib and so on."""
    directory = cache / "headers"
    if not directory.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        for name in _HEADERS:
            (fresh / f"metal_{name}").write_text("#pragma once\n")
        try:
            fresh.rename(directory)
        except OSError:  # another process was first
            for file in fresh.iterdir():
                file.unlink()
            fresh.rmdir()
    return directory


def preprocess(
    text: str, name: str, include: Path | None, macros: list[str], version: int, cache: Path
) -> str:
    """The text with line markers that name its files. Raises CompileError."""
    command = [CLANG, "-E", "-x", "c++", "-std=c++17", "-nostdinc", "-undef"]
    command += ["-D__METAL__=1", f"-D__METAL_VERSION__={version}", "-D__METAL_MACOS__=1"]
    command += [f"-D{macro}" for macro in macros]
    command += ["-isystem", str(_empty_headers(cache))]
    if include is not None:
        command += ["-I", str(include)]
    marked = f'#line 1 "{name}"\n{text}\n'
    result = subprocess.run([*command, "-"], input=marked, capture_output=True, text=True)
    if result.returncode != 0:
        raise CompileError(result.stderr.rstrip())
    return result.stdout
