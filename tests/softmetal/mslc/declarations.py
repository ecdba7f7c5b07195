"""Finds what a source declares at namespace scope: functions, instantiations, variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lexer import Source

_ATTRIBUTE = re.compile(r"([\w:]+)\s*(?:\(((?:[^()\"]|\"[^\"]*\")*)\))?")
ADDRESS_SPACES = ("device", "constant", "threadgroup", "thread")


@dataclass
class Attribute:
    """`[[name(argument)]]`."""

    name: str
    argument: str


@dataclass
class Parameter:
    """A parameter of a function: tokens [first, last)."""

    first: int
    last: int
    type: str
    name: str
    attributes: list[Attribute]


@dataclass
class Function:
    """A function definition: tokens [first, last), its body in braces at `body`."""

    first: int
    last: int
    name: str
    qualified: str
    parameters: list[Parameter]
    body: int
    attributes: list[Attribute]
    template: list[str] | None  # the names of its template parameters
    is_kernel: bool


@dataclass
class Instantiation:
    """`template [[host_name("n")]] kernel void f<...>(...);`: tokens [first, last)."""

    first: int
    last: int
    host_name: str
    template_id: str


@dataclass
class Variable:
    """A variable at namespace scope: tokens [first, last), without the semicolon."""

    first: int
    last: int
    name: str
    name_at: int
    attributes: list[Attribute]


@dataclass
class Declarations:
    """All of a source."""

    functions: list[Function] = field(default_factory=list)
    instantiations: list[Instantiation] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)


def attributes(source: Source, first: int, last: int) -> list[Attribute]:
    """The attributes in tokens [first, last)."""
    found = []
    i = first
    while i < last:
        if source.is_attribute(i):
            inner = source.join(i + 2, source.partner[i + 1])
            found += [
                Attribute(name, argument.strip()) for name, argument in _ATTRIBUTE.findall(inner)
            ]
            i = source.partner[i]
        i += 1
    return found


def argument(found: list[Attribute], name: str) -> str | None:
    """The argument of the attribute of a name; None if there is no such attribute."""
    return next((a.argument for a in found if a.name == name), None)


def text_argument(found: list[Attribute], name: str) -> str | None:
    """The same for a string: adjacent literals are one."""
    value = argument(found, name)
    return None if value is None else "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', value))


def split(source: Source, first: int, last: int) -> list[tuple[int, int]]:
    """The parts of tokens [first, last) between commas that are in no brackets."""
    parts, start, i = [], first, first
    while i < last:
        text = source.text[i]
        if text in ("(", "[", "{"):
            i = source.partner[i]
        elif text == "<" and source.close_angle(i) >= 0:
            i = source.close_angle(i)
        elif text == ",":
            parts.append((start, i))
            start = i + 1
        i += 1
    if source.significant(start, last):
        parts.append((start, last))
    return parts


def _parameter(source: Source, first: int, last: int) -> Parameter:
    tokens = source.significant(first, last)
    bare, i = [], 0
    while i < len(tokens):
        at = tokens[i]
        if source.is_attribute(at):
            end = source.partner[at]
            while i < len(tokens) and tokens[i] <= end:
                i += 1
            continue
        if source.text[at] == "=":
            break
        bare.append(at)
        i += 1
    name = ""
    type_last = len(bare)
    if (
        len(bare) > 1
        and source.kind[bare[-1]] == "name"
        and source.text[bare[-1]]
        not in (
            "const",
            "int",
            "uint",
            "float",
            "half",
            "bool",
        )
    ):
        name = source.text[bare[-1]]
        type_last -= 1
    text = " ".join(source.text[at] for at in bare[:type_last])
    return Parameter(first, last, text, name, attributes(source, first, last))


def _skip_attribute(source: Source, i: int) -> int:
    return source.after(source.partner[i])


class _Scanner:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.found = Declarations()

    def scan(self, first: int, last: int, scope: str) -> None:
        i = first - 1
        i = self.source.after(i)
        while i < last:
            i = self.declaration(i, last, scope)

    def declaration(self, first: int, last: int, scope: str) -> int:
        """Takes in the declaration that begins at a token; the beginning of the next one."""
        source = self.source
        text = source.text[first]
        if text in (";", "}"):
            return source.after(first)
        if text == "namespace" or (
            text == "extern" and source.kind[source.after(first)] == "string"
        ):
            brace = first
            while source.text[brace] not in ("{", ";"):
                brace += 1
            if source.text[brace] == ";":
                return source.after(brace)
            name = source.at(source.before(brace)) if text == "namespace" else ""
            inner = f"{scope}{name}::" if name not in ("", "namespace") else scope
            self.scan(brace + 1, source.partner[brace], inner)
            return source.after(source.partner[brace])

        template: list[str] | None = None
        i = first
        is_template = source.text[i] == "template"
        if is_template:
            i = source.after(i)
            if source.text[i] == "<":
                close = source.close_angle(i)
                template = self._template_names(i + 1, close)
                i = source.after(close)
        parameters_at = equals = -1
        start = i
        while i < last:
            text = source.text[i]
            if source.is_attribute(i):
                i = _skip_attribute(source, i)
                continue
            if text == ";":
                break
            if text == "<" and source.kind[source.before(i)] == "name" and equals < 0:
                close = source.close_angle(i)
                if close >= 0:
                    i = source.after(close)
                    continue
            if text == "=" and equals < 0 and source.at(source.before(i)) != "operator":
                equals = i
            if text == "(":
                if (
                    parameters_at < 0
                    and equals < 0
                    and source.at(source.before(i))
                    not in (
                        "decltype",
                        "__attribute__",
                        "alignas",
                    )
                ):
                    parameters_at = i
                i = source.after(source.partner[i])
                continue
            if text == "[":
                i = source.after(source.partner[i])
                continue
            if text == "{":
                if parameters_at >= 0 and equals < 0:
                    self._function(first, start, parameters_at, i, template, scope)
                    return source.after(source.partner[i])
                i = source.after(source.partner[i])
                continue
            i = source.after(i)
        if is_template and template is None:
            self._instantiation(first, start, i)
        elif parameters_at < 0 and source.text[start] not in (
            "struct",
            "class",
            "enum",
            "union",
            "using",
            "typedef",
            "static_assert",
        ):
            self._variable(first, i, equals)
        return source.after(i)

    def _template_names(self, first: int, last: int) -> list[str]:
        names = []
        for a, b in split(self.source, first, last):
            tokens = []
            for at in self.source.significant(a, b):
                if self.source.text[at] == "=":
                    break
                tokens.append(self.source.text[at])
            pack = "..." if "." in tokens else ""
            named = [t for t in tokens if re.fullmatch(r"[A-Za-z_]\w*", t)]
            unnamed = len(named) < 2
            names.append("" if unnamed else named[-1] + pack)
        return names

    def _function(
        self, first: int, start: int, open_: int, body: int, template: list[str] | None, scope: str
    ) -> None:
        source = self.source
        name_at = source.before(open_)
        name = source.text[name_at]
        specifiers = [source.text[i] for i in source.significant(start, name_at)]
        found = attributes(source, first, open_) + attributes(source, source.partner[open_], body)
        is_kernel = "kernel" in specifiers or any(a.name == "kernel" for a in found)
        self.found.functions.append(
            Function(
                first,
                source.partner[body] + 1,
                name,
                scope + name,
                [
                    _parameter(source, a, b)
                    for a, b in split(source, open_ + 1, source.partner[open_])
                ],
                body,
                found,
                template,
                is_kernel,
            )
        )

    def _instantiation(self, first: int, start: int, last: int) -> None:
        source = self.source
        host = text_argument(attributes(source, first, last), "host_name")
        if host is None:
            return
        tokens, i = [], start
        while i < last:
            if source.is_attribute(i):
                i = _skip_attribute(source, i)
                continue
            if source.kind[i] not in ("space", "directive"):
                tokens.append(i)
            i += 1
        words = [t for t in tokens if source.text[t] not in ("kernel", "void")]
        at = words[0]
        if source.text[at] == "decltype":
            at = source.after(source.partner[source.after(at)])
        end = at
        while end < last and source.text[end] != "(":
            if source.text[end] == "<":
                end = source.close_angle(end)
            end += 1
        identifier = source.join(at, end).strip()
        self.found.instantiations.append(
            Instantiation(first, last + 1, host, re.sub(r"\s+", " ", identifier))
        )

    def _variable(self, first: int, last: int, equals: int) -> None:
        source = self.source
        end = equals if equals >= 0 else last
        name_at, i = -1, first
        while i < end:
            if source.is_attribute(i):
                break
            if source.text[i] == "[":
                break
            if source.text[i] == "<" and source.close_angle(i) >= 0:
                i = source.close_angle(i)
            elif source.kind[i] == "name":
                name_at = i
            i += 1
        if name_at >= 0:
            self.found.variables.append(
                Variable(first, last, source.text[name_at], name_at, attributes(source, first, end))
            )


def declarations(source: Source) -> Declarations:
    """What a source declares, in order."""
    scanner = _Scanner(source)
    scanner.scan(0, len(source), "")
    return scanner.found
