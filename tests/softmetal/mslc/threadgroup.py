"""Variables in threadgroup memory: one object for all threads of a threadgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .declarations import Declarations, Function, split

if TYPE_CHECKING:
    from .lexer import Source


def _identity(function: Function) -> str:
    """The kernel's own address, as an expression inside it."""
    if function.template is None:
        return f"&{function.name}"
    return f"&{function.name}<{', '.join(function.template)}>"


def _statement_end(source: Source, i: int) -> int:
    while source.text[i] != ";":
        i = source.partner[i] + 1 if source.text[i] in "([{" else i + 1
    return i


def _is_variable(source: Source, first: int, last: int) -> bool:
    """Whether `threadgroup ...` at a statement's beginning is no pointer or reference."""
    i = source.after(first)
    while i < last:
        text = source.text[i]
        if text in ("*", "&"):
            return False
        if text in ("=", "["):
            return True
        if text == "<" and source.close_angle(i) >= 0:
            i = source.close_angle(i)
        elif text == "(":
            i = source.partner[i]
        i = source.after(i)
    return True


def _rewrite_statement(source: Source, function: Function, first: int, last: int) -> None:
    parts = split(source, first, last)
    for a, b in parts:
        if any(source.text[i] in ("=", "{") for i in source.significant(a, b)):
            raise source.error(a, "a threadgroup variable cannot have an initializer")
    out = []
    kind = ""
    for k, (a, b) in enumerate(parts):
        tokens = source.significant(a, b)
        bracket = next((n for n, i in enumerate(tokens) if source.text[i] == "["), len(tokens))
        name = source.text[tokens[bracket - 1]]
        if k == 0:
            kind = " ".join(source.text[i] for i in tokens[1 : bracket - 1])
        dimensions = "".join(source.text[i] for i in tokens[bracket:])
        out.append(
            f"typedef {kind} {name}_msl_type {dimensions}; "
            f"MSL_THREADGROUP_VARIABLE({name}, {_identity(function)})"
        )
    source.clear(first, last, "; ".join(out))


def rewrite(source: Source, found: Declarations) -> None:
    """Declares each variable where the emulator, or the GPU, has put it."""
    inside: dict[int, Function] = {}
    for function in found.functions:
        for i in range(function.body, function.last):
            inside[i] = function
    for i, text in enumerate(list(source.text)):
        if text != "threadgroup" or source.kind[i] != "name":
            continue
        if source.at(source.before(i)) not in ("{", "}", ";", ""):
            continue
        last = _statement_end(source, i)
        if not _is_variable(source, i, last):
            continue
        if i not in inside or not inside[i].is_kernel:
            raise source.error(i, "threadgroup variables can be declared in kernels only")
        _rewrite_statement(source, inside[i], i, last)
