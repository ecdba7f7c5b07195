"""One spelling for the types of Objective-C and of metal-cpp."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def normalize(type_: str, aliases: Mapping[str, str]) -> str:
    """A type without const, names of parameters and spaces: `MTLBuffer*`, `NSError**`.

    `aliases` holds what a type's name stands for; enumerations and structures stand for themselves.
    """
    text = type_.replace("std::", "").replace("MTL::", "MTL").replace("NS::", "NS")
    text = re.sub(r"\bid<(\w+)>", r"\1 *", text)
    text = re.sub(r"\b(const|_Nullable|_Nonnull|__kindof|struct|oneway|class|enum)\b", "", text)
    text = re.sub(r"<[\w\s*,]+>", "", text)  # NSArray<NSString *>
    block = re.match(r"\s*(.+?)\(\s*\^\s*\w*\s*\)\s*\((.*)\)\s*$", text)
    if block:
        parameters = [normalize(p, aliases) for p in split(block.group(2))]
        return f"{normalize(block.group(1), aliases)}(^)({','.join(parameters)})"
    pointers = text.count("*") + text.count("[")
    words = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", text))
    kept = [w for w in words if w in ("unsigned", "long", "int", "char", "short")]
    name = " ".join(kept) if kept else (words[0] if words else "void")
    if pointers and f"{name}*" in aliases:
        return aliases[f"{name}*"] + "*" * (pointers - 1)
    if name in aliases and aliases[name] not in (type_, name):
        target = normalize(aliases[name], aliases)
        return target + "*" * pointers if pointers else target
    return name + "*" * pointers


def split(parameters: str) -> list[str]:
    """The parameters of a list; none if it is empty."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(parameters):
        depth += (char in "(<[") - (char in ")>]")
        if char == "," and depth == 0:
            parts.append(parameters[start:i])
            start = i + 1
    last = parameters[start:].strip()
    return [p.strip() for p in parts] + ([last] if last and last != "void" else [])
