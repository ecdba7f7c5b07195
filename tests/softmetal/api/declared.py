"""What our headers declare, from clang's syntax tree."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.softmetal.mslc.preprocess import CLANG


@dataclass
class Method:
    """One method: its selector begins with + or -."""

    owner: str
    selector: str
    returns: str
    parameters: list[str]


@dataclass
class Api:
    """All that a set of headers declares."""

    methods: list[Method] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    enumerations: dict[str, str] = field(default_factory=dict)  # underlying types
    aliases: dict[str, str] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)


_NODE = re.compile(r"^(?P<indent>[\s|`-]*)(?P<kind>\w+) 0x[0-9a-f]+ (?P<rest>.*)$")
_TYPE = re.compile(r"'([^']*)'(?::'[^']*')?")


def _read(tree: str) -> Api:
    """From clang's printed tree: a node a line, indented below its parent."""
    api = Api()
    owner, method, value_of = "", None, ""
    for line in tree.splitlines():
        value = re.search(r"-value: Int (-?\d+)", line)
        if value and value_of:
            api.values[value_of], value_of = int(value.group(1)), ""
        node = _NODE.match(line)
        if node is None:
            continue
        kind, rest = node["kind"], node["rest"]
        type_ = _TYPE.search(rest)
        words = (rest[: type_.start()] if type_ else rest).split()
        name = words[-1] if words else ""
        if kind in ("ObjCInterfaceDecl", "ObjCProtocolDecl"):
            owner = name
        elif kind == "ObjCMethodDecl" and type_:
            method = Method(owner, words[-2] + name, type_.group(1), [])
            api.methods.append(method)
        elif kind == "ParmVarDecl" and method is not None and type_:
            method.parameters.append(type_.group(1))
        elif kind == "EnumDecl" and type_:
            api.enumerations[name] = type_.group(1)
        elif kind == "EnumConstantDecl":
            value_of = name
        elif kind == "TypedefDecl" and type_:
            api.aliases[name] = type_.group(1)
        elif kind == "VarDecl" and type_:
            api.constants.add(name)
        if kind in ("FunctionDecl", "ObjCPropertyDecl"):
            method = None
    return api


def declared(sdk: Path) -> Api:
    """What <Metal/Metal.h> of a directory declares, with what it includes."""
    include = next(Path("/usr/lib/gcc").glob("*/*/include/objc/objc.h")).parent.parent
    result = subprocess.run(
        [
            CLANG,
            "-x",
            "objective-c++",
            "-std=c++20",
            "-fobjc-runtime=gcc",
            "-fblocks",
            "-fsyntax-only",
            "-fno-color-diagnostics",
            "-Xclang",
            "-ast-dump",
            "-idirafter",
            str(include),
            "-I",
            str(sdk),
            "-include",
            "Metal/Metal.h",
            "-",
        ],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    api = _read(result.stdout)
    ours = ("MTL", "NS", "CF")
    api.methods = [m for m in api.methods if m.owner.startswith(ours)]
    api.values = {n: v for n, v in api.values.items() if n.startswith(ours)}
    api.constants = {n for n in api.constants if n.startswith(ours)}
    return api
