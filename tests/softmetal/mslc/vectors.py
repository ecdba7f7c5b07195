"""What C++ cannot say of vectors: T(a, b, c), T v(a, b), (T)v, and the literals 1.0h and 1.0bf."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from .declarations import split

if TYPE_CHECKING:
    from .lexer import Source

_ELEMENTS = [
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "bfloat",
    "float",
]
_VECTORS = {f"{element}{n}" for element in _ELEMENTS for n in (2, 3, 4)}
_HALF = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[hH]$")
_BFLOAT = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?:bf|BF)$")
# Before a type's name these say that a declaration or a template argument follows, not a value.
_NO_VALUE = {"operator", "typename", "class", "struct", "using", "typedef", "new", "sizeof", "~"}


def _aliases(source: Source) -> set[str]:
    """Names that may be those of vector types: aliases, and template parameters."""
    names = set()
    for i, text in enumerate(source.text):
        if text == "using" and source.at(source.after(source.after(i))) == "=":
            names.add(source.text[source.after(i)])
        elif text in ("typename", "class") and source.at(source.before(i)) in ("<", ","):
            name = source.after(i)
            if source.kind[min(name, len(source) - 1)] == "name":
                names.add(source.text[name])
        elif text == "typedef":
            end = i
            while source.at(end) not in (";", ""):
                end = source.partner.get(end, end) + 1 if source.at(end) in "([{" else end + 1
            names.add(source.at(source.before(end)))
    return names


def _type_end(source: Source, i: int, names: set[str]) -> int:
    """The last token of the type that begins at a token, or -1 if none of ours does."""
    text = source.text[i]
    if text == "vec" and source.at(source.after(i)) == "<":
        return source.close_angle(source.after(i))
    return i if text in _VECTORS or text in names or text == "bfloat" else -1


def _is_operand(source: Source, i: int) -> bool:
    """Whether an expression begins here, rather than an operator after one."""
    if i >= len(source):
        return False
    return source.kind[i] in ("name", "number") or source.text[i] in ("(", "-", "*")


def _parameter_list(source: Source, open_: int) -> bool:
    """Whether the parentheses after a type's name hold parameters, as in a function type."""
    inner = source.after(open_)
    return source.at(inner) in ("*", "&", "device", "constant", "threadgroup", "thread")


def _literal(source: Source, i: int) -> None:
    for pattern, kind in ((_HALF, "half"), (_BFLOAT, "bfloat")):
        match = pattern.match(source.text[i])
        if match:
            digits = match.group(1)
            if not re.search(r"[.eE]", digits):
                digits += ".0"
            source.text[i] = f"(({kind}){digits}f)"
            return


def rewrite(source: Source) -> None:
    """Writes all of them as calls that C++ understands."""
    names = _aliases(source)
    i = 0
    while i < len(source):
        if source.kind[i] == "number":
            _literal(source, i)
        end = _type_end(source, i, names) if source.kind[i] == "name" else -1
        if end >= 0:
            _rewrite_use(source, i, end)
        i += 1


def _rewrite_use(source: Source, first: int, end: int) -> None:
    previous = source.before(first)
    following = source.after(end)
    before = source.at(previous)
    qualified = before == "::"
    if before in _NO_VALUE or (qualified and source.at(source.before(previous)) != "metal"):
        return
    if source.at(following) == "(":
        if not _parameter_list(source, following):
            source.text[first] = "metal::make<" + source.text[first]
            if qualified:
                source.text[source.before(previous)] = source.text[previous] = ""
            source.text[end] += ">"
        return
    if before == "(" and source.at(following) == ")":
        _rewrite_cast(source, previous, following)
        return
    # float4 v(a, b);
    if source.kind[min(following, len(source) - 1)] != "name":
        return
    open_ = source.after(following)
    if source.at(open_) == "(" and before in ("{", "}", ";", "const", ")"):
        close = source.partner[open_]
        is_declaration = source.at(source.after(close)) == "{"
        if source.at(source.after(close)) == ";" and not is_declaration:
            parts = split(source, open_ + 1, close)
            if parts and not any(_looks_like_parameter(source, a, b) for a, b in parts):
                kind = source.join(first, end + 1)
                source.text[open_] = f" = metal::make<{kind}>("


def _looks_like_parameter(source: Source, first: int, last: int) -> bool:
    tokens = source.significant(first, last)
    words = [source.kind[i] == "name" for i in tokens]
    return any(a and b for a, b in itertools.pairwise(words)) or (
        bool(tokens) and source.text[tokens[-1]] in ("&", "*")
    )


def _rewrite_cast(source: Source, open_: int, close: int) -> None:
    caller = source.at(source.before(open_))
    if caller in ("sizeof", "alignof", "decltype") or source.partner[open_] != close:
        return
    is_call = re.fullmatch(r"[A-Za-z_]\w*|\)|\]|>", caller) and caller not in ("return", "else")
    if is_call or not _is_operand(source, source.after(close)):
        return
    source.text[open_] = "metal::caster<"
    source.text[close] = ">()->*"
