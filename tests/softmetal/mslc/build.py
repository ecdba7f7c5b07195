"""Runs clang on translated sources."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import CompileError
from .preprocess import CLANG, preprocess
from .translate import translate

if TYPE_CHECKING:
    from .cache import Cache

_HERE = Path(__file__).resolve().parent
_INCLUDES = ["-I", str(_HERE / "include"), "-I", str(_HERE.parent)]
_LANGUAGE = [
    "-x",
    "c++",
    "-std=c++17",
    "-nostdinc",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-Xclang",
    "-cl-single-precision-constant",
    "-fno-lax-vector-conversions",
    "-Wno-everything",
    "-fno-caret-diagnostics",
]
_EMULATOR = [
    "-O2",
    "-fPIC",
    "-march=x86-64-v3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-stack-protector",
    "-fstack-clash-protection",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
]
_PTX = [
    "-target",
    "nvptx64-nvidia-cuda",
    "-march=sm_90",
    "-O3",
    "-S",
    "-nogpulib",
    "-ffreestanding",
    "-ffp-contract=fast",
    # No call moves into or out of a branch, and none is left: each kernel is one function.
    "-fconvergent-functions",
    "-mllvm",
    "-inline-threshold=1000000",
]
# Every access calls a function, which looks it up in the buffers that the kernel was given.
_CHECKED = [
    "-fsanitize=kernel-address",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-kernel-mem-intrinsic-prefix=1",
    "-mllvm",
    "-asan-stack=0",
    "-mllvm",
    "-asan-globals=0",
    "-DMSL_CHECKED",
]
# The lanes of an OS thread are one thread to the sanitizer, and their calls do not nest.
_THREAD = ["-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"]
_VARIANTS = {"plain": [], "checked": _CHECKED, "thread": _THREAD}


def _run(command: list[str], source: str) -> None:
    result = subprocess.run(command, input=source, capture_output=True, text=True)
    if result.returncode != 0:
        raise CompileError(result.stderr.rstrip())


def _own_hash() -> str:
    """Of everything that decides what a source becomes, besides itself."""
    digest = hashlib.sha256()
    files = [*_HERE.rglob("*.py"), *_HERE.rglob("*.h"), _HERE.parent / "emulator" / "abi.h"]
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _version() -> str:
    return subprocess.run([CLANG, "--version"], capture_output=True, text=True).stdout


def build_library(
    text: str,
    name: str,
    include: Path | None,
    macros: list[str],
    version: int,
    variant: str,
    cache: Cache,
) -> Path:
    """The shared library of a source for the emulator, compiled unless the cache has it.

    Raises CompileError.
    """
    expanded = preprocess(text, name, include, macros, version, cache.directory)
    key = cache.key(expanded, name, variant, _own_hash(), _version())

    def make(path: Path) -> None:
        code, _ = translate(expanded, name, "emulator")
        command = [CLANG, *_LANGUAGE, *_EMULATOR, *_VARIANTS[variant], *_INCLUDES]
        _run([*command, "-shared", "-", "-o", str(path), "-lm"], code)

    return cache.get(f"{key}.so", make)


def check(
    text: str, name: str, include: Path | None, macros: list[str], version: int, cache: Cache
) -> list[str]:
    """Checks a source with address spaces as types. Raises CompileError.

    Returns the names of its kernels.
    """
    expanded = preprocess(text, name, include, macros, version, cache.directory)
    code, names = translate(expanded, name, "check")
    command = [CLANG, *_LANGUAGE, *_INCLUDES, "-DMSL_STRICT", "-fsyntax-only", "-ferror-limit=0"]
    result = subprocess.run([*command, "-"], input=code, capture_output=True, text=True)
    errors = _real_errors(result.stderr) if result.returncode != 0 else ""
    if errors:
        raise CompileError(errors)
    return names


def _real_errors(diagnostics: str) -> str:
    """Without what C++ says of copies out of other address spaces, which Metal allows.

    An implicit copy constructor takes a reference to plain memory, and clang does not make others.
    """
    kept: list[str] = []
    block: list[str] = []

    def flush() -> None:
        head = next((line for line in block if "error: " in line), "")
        notes = [line for line in block if ": note: " in line]
        copy = re.search(r"error: no (matching constructor|viable overloaded '=')", head)
        implicit = [n for n in notes if "implicit copy" in n or "implicit move" in n]
        others = [n for n in notes if n not in implicit and "requires 0 arguments" not in n]
        if head and not (copy and implicit and not others):
            kept.extend(block)

    has_error = False
    for line in diagnostics.splitlines():
        is_error = ": error: " in line or ": fatal error: " in line
        if has_error and (is_error or line.startswith("In file included from ")):
            flush()
            block, has_error = [], False
        if not re.match(r"\d+ errors? generated", line):
            block.append(line)
        has_error = has_error or is_error
    flush()
    return "\n".join(kept)


def build_ptx(
    text: str,
    name: str,
    include: Path | None,
    macros: list[str],
    version: int,
    output: Path,
    cache: Cache,
) -> list[str]:
    """Writes PTX for sm_90 with an entry for each kernel; their names. Raises CompileError."""
    expanded = preprocess(text, name, include, macros, version, cache.directory)
    code, names = translate(expanded, name, "ptx")
    _run([CLANG, *_LANGUAGE, *_PTX, *_INCLUDES, "-", "-o", str(output)], code)
    return names
