"""Function constants: variables whose values are known when a pipeline is made, not before. Each
becomes a function that reads the value the running kernel was made with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .declarations import Declarations, Function, Variable, argument

if TYPE_CHECKING:
    from .lexer import Source

_DATA_TYPES = {
    "float": 3, "half": 16, "int": 29, "uint": 33, "short": 37, "ushort": 41, "char": 45,
    "uchar": 49, "bool": 53,
}  # fmt: skip


@dataclass
class FunctionConstant:
    """`constant T name [[function_constant(index)]];`, or derived from such: then `index` is -1."""

    name: str
    index: int
    type: str
    optional: bool  # the source asks whether it is defined
    uses: frozenset[str]

    @property
    def data_type(self) -> int:
        """Its MTLDataType."""
        return _DATA_TYPES[self.type]


def accessor(name: str) -> str:
    """The function that stands for a function constant."""
    return f"msl_constant_{name}"


def _type(source: Source, variable: Variable) -> str:
    words = [source.text[i] for i in source.significant(variable.first, variable.name_at)]
    return " ".join(w for w in words if w not in ("constant", "constexpr", "static", "const"))


def _initializer(source: Source, variable: Variable) -> int:
    i = variable.name_at
    while i < variable.last and source.text[i] != "=":
        i += 1
    return i


def find(source: Source, found: Declarations) -> dict[str, FunctionConstant]:
    """The function constants of a source by name, derived ones too. Raises CompileError."""
    constants: dict[str, FunctionConstant] = {}
    asked = {
        source.text[source.after(source.after(i))]
        for i, text in enumerate(source.text)
        if text == "is_function_constant_defined"
    }
    for variable in found.variables:
        index = argument(variable.attributes, "function_constant")
        kind = _type(source, variable)
        if index is not None:
            if kind not in _DATA_TYPES:
                raise source.error(
                    variable.first,
                    f"function constant '{variable.name}' has type "
                    f"'{kind}', and only scalars are supported",
                )
            if not index.isdigit():
                raise source.error(
                    variable.first,
                    f"the index of function constant '{variable.name}' must be a number",
                )
            constants[variable.name] = FunctionConstant(
                variable.name, int(index), kind, variable.name in asked, frozenset([variable.name])
            )
            continue
        equals = _initializer(source, variable)
        uses = {
            source.text[i]
            for i in source.significant(equals, variable.last)
            if source.text[i] in constants
        }
        if uses:
            underlying = frozenset().union(*(constants[name].uses for name in uses))
            constants[variable.name] = FunctionConstant(variable.name, -1, kind, False, underlying)
    return constants


def needed(
    source: Source, found: Declarations, constants: dict[str, FunctionConstant], kernel: Function
) -> list[str]:
    """The function constants that a kernel cannot do without: those it or what it calls names."""
    by_name: dict[str, list[Function]] = {}
    for function in found.functions:
        by_name.setdefault(function.name, []).append(function)
    names: set[str] = set()
    pending, seen = [kernel], set()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        words = {
            source.text[i] for i in range(function.first, function.last) if source.kind[i] == "name"
        }
        names |= words & constants.keys()
        for word in words & by_name.keys():
            pending.extend(f for f in by_name[word] if f is not function)
    underlying = set().union(*(constants[name].uses for name in names)) if names else set()
    return sorted(name for name in underlying if not constants[name].optional)


def rewrite(source: Source, found: Declarations, constants: dict[str, FunctionConstant]) -> None:
    """Puts the accessors in the place of declarations and uses."""
    declared = {v.name_at: v for v in found.variables if v.name in constants}
    slots = {name: k for k, name in enumerate(c.name for c in constants.values() if c.index >= 0)}
    for i, text in enumerate(list(source.text)):
        if source.kind[i] != "name" or text not in constants or i in declared:
            continue
        if source.at(source.before(i)) in (".", "->"):
            continue
        open_ = source.before(i)
        if source.at(source.before(open_)) == "is_function_constant_defined":
            source.clear(source.before(open_), source.after(i) + 1)
            source.text[i] = accessor(text) + "_defined()"
            continue
        source.text[i] = accessor(text) + "()"
    for variable in declared.values():
        constant = constants[variable.name]
        name = accessor(constant.name)
        head = f"static inline {constant.type} {name}()"
        if constant.index >= 0:
            slot = f"msl_constants()[{slots[constant.name]}]"
            body = (
                f"{head} {{ return msl::constant_value<{constant.type}>({slot}); }} "
                f"static inline bool {name}_defined() {{ return {slot}.defined; }}"
            )
            source.clear(variable.first, variable.last, body)
        else:
            equals = _initializer(source, variable)
            source.clear(variable.first, equals + 1, f"{head} {{ return (")
            source.text[variable.last] = "); };" + source.text[variable.last][1:]
