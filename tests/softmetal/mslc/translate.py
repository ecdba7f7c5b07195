"""From Metal to C++: all the steps in their order."""

from __future__ import annotations

from . import constants, dialect, entries, threadgroup, vectors
from .declarations import declarations
from .lexer import Source, lex

_KEYWORDS = """
#define kernel
#define device MSL_DEVICE
#define threadgroup MSL_THREADGROUP
#define thread
#define constant MSL_CONSTANT const
"""


def _remove_attributes(source: Source) -> None:
    for i in range(len(source)):
        if source.is_attribute(i):
            source.clear(i, source.partner[i] + 1)


def _pragmas(source: Source) -> None:
    """Metal's floating-point pragmas, in clang's words."""
    for i, text in enumerate(source.text):
        if source.kind[i] == "directive" and "METAL" in text:
            off = "contract(off)" in text.replace(" ", "")
            source.text[i] = "#pragma clang fp contract(off)" if off else ""


def translate(text: str, name: str, target: str) -> tuple[str, list[str]]:
    """C++ for a target ("emulator", "check" or "ptx"), and the host names of its kernels.

    `text` is preprocessed. Raises CompileError.
    """
    source = lex(text, name)
    found = declarations(source)
    dialect.check(source, found)
    values = constants.find(source, found)
    all_ = entries.entries(source, found)
    if target == "ptx":
        table = entries.ptx_entries(values, all_)
    else:
        table = entries.emulator_table(source, found, values, all_)

    for instantiation in found.instantiations:
        source.clear(instantiation.first, instantiation.last)
    threadgroup.rewrite(source, found)
    vectors.rewrite(source)
    constants.rewrite(source, found, values)
    _remove_attributes(source)
    _pragmas(source)
    body = source.join(0, len(source))
    parts = ["#include <msl/stdlib.h>", "#include <msl/entry.h>"]
    if target == "ptx":
        count = max(1, sum(c.index >= 0 for c in values.values()))
        parts.append(f"MSL_PTX_CONSTANTS({count})")
    parts += [_KEYWORDS, body]
    if target != "check":
        parts += ["#undef device", "#undef constant", "#undef thread", "#undef threadgroup", table]
    return "\n".join(parts) + "\n", [entry.host_name for entry in all_]
