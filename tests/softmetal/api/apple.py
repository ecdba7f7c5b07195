"""What Apple declares, from metal-cpp's headers and PyObjC's metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .declared import Api, Method
from .types import split

if TYPE_CHECKING:
    from pathlib import Path

_METHOD = re.compile(
    r"^_(?:MTL|NS)_INLINE\s+(?P<returns>[^;{}()]*?(?:\([^)]*\))?[^;{}()]*?)\s*"
    r"(?P<owner>(?:MTL|NS)::\w+)::(?P<name>[\w~]+)\((?P<parameters>[^{}]*)\)(?:\s*const)?\s*\{"
    r"(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)
_CLASS = re.compile(
    r"^class\s+(\w+)\s*:\s*public\s+(?:NS::)?(?:Referencing|Copying|SecureCoding)"
    r"<\s*[\w:]+\s*(?:,\s*([\w:]+)\s*)?>",
    re.MULTILINE,
)
_ENUM = re.compile(
    r"_(?:MTL|NS)_(?:ENUM|OPTIONS)\(\s*([\w:]+)\s*,\s*(\w+)\s*\)\s*\{(.*?)\}", re.DOTALL
)


class Apple(Api):
    """Also the classes' bases, and PyObjC's values."""

    def __init__(self) -> None:
        super().__init__()
        self.bases: dict[str, str] = {}
        self.metadata: dict[str, int] = {}


def _selectors(root: Path) -> dict[str, str]:
    """Selectors by the names that metal-cpp's macros give them."""
    found = {}
    for path in root.rglob("*.hpp"):
        text = path.read_text(errors="ignore")
        pattern = r'_(?:MTL|NS)_PRIVATE_DEF_SEL\(\s*(\w+),\s*"([^"]+)"'
        found.update(re.findall(pattern, text))
    return found


def _parameter_type(text: str) -> str:
    """Of a declaration of a parameter: without its name."""
    if "(^" in text:
        return re.sub(r"\(\s*\^\s*\w*\s*\)", "(^)", text)
    array = "*" if "[" in text else ""
    text = re.sub(r"\[[^\]]*\]", "", text).strip()
    return re.sub(r"\b\w+$", "", text) + array if re.search(r"[\s*&]\w+$", text) else text + array


def _scoped(type_: str, namespace: str) -> str:
    """A type whose names all say their namespace."""
    return re.sub(r"(?<![\w:])(?!NS|MTL|CF|BOOL)(_?[A-Z]\w+)(?!::)", namespace + r"\1", type_)


def _read_methods(text: str, namespace: str, selectors: dict[str, str], api: Apple) -> None:
    for match in _METHOD.finditer(text):
        used = re.search(r"_(?:MTL|NS)_PRIVATE_SEL\((\w+)\)", match["body"])
        if used is None or used.group(1) not in selectors:
            continue
        static = "_PRIVATE_CLS(" in match["body"]
        selector = selectors[used.group(1)]
        parameters = [_scoped(_parameter_type(p), namespace) for p in split(match["parameters"])]
        owner = match["owner"].replace("::", "")
        if owner == "NSObject" and namespace != "NS":
            continue
        api.methods.append(
            Method(
                owner,
                ("+" if static else "-") + selector,
                _scoped(match["returns"], namespace),
                parameters,
            )
        )


def _read_enumerations(text: str, namespace: str, api: Apple) -> None:
    for kind, name, body in _ENUM.findall(text):
        api.enumerations[namespace + name] = kind
        last = -1
        for item in re.sub(r"//[^\n]*", "", body).split(","):
            member = re.match(r"\s*(\w+)\s*(?:=\s*(.+?))?\s*$", item, re.DOTALL)
            if member is None:
                continue
            value = member.group(2)
            if value is None:
                last += 1
            elif re.fullmatch(r"[\d\s<>|+()xXa-fA-F-]+", value):
                last = int(eval(value))
            else:
                continue
            api.values[namespace + member.group(1)] = last


def read_apple(directory: Path) -> Apple:
    """Everything of the packages in a directory."""
    api = Apple()
    root = directory / "mlx" / "include" / "metal_cpp"
    selectors = _selectors(root)
    for folder, namespace in (("Metal", "MTL"), ("Foundation", "NS")):
        for path in sorted((root / folder).glob("*.hpp")):
            if path.name.startswith("MTL4"):
                continue
            text = path.read_text(errors="ignore")
            _read_methods(text, namespace, selectors, api)
            _read_enumerations(text, namespace, api)
            for name, base in _CLASS.findall(text):
                api.bases[namespace + name] = (
                    base.replace("NS::", "NS").replace("MTL::", "MTL")
                    if "::" in base
                    else namespace + base
                    if base
                    else "NSObject"
                )
            for name, target in re.findall(r"^\s*using (\w+) = ([^;]+);", text, re.MULTILINE):
                if "function<" not in target:
                    api.aliases[namespace + name] = _scoped(target, namespace)
            pattern = r"_(?:MTL|NS)_CONST\(\s*[\w:]+\s*,\s*(\w+)"
            api.constants.update(namespace + name for name in re.findall(pattern, text))
    metadata = (directory / "Metal" / "_metadata.py").read_text()
    api.constants.update(re.findall(r"\$(MTL\w+Domain)\b", metadata))
    api.metadata = {n: int(v) for n, v in re.findall(r"\$?(MTL\w+)@(-?\d+)", metadata)}
    return api
