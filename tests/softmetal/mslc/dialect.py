"""What clang's C++ takes and Metal's does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .declarations import ADDRESS_SPACES, Declarations
from .errors import CompileError

if TYPE_CHECKING:
    from .lexer import Source

_ABSENT = {
    "double",
    "new",
    "delete",
    "throw",
    "try",
    "catch",
    "virtual",
    "dynamic_cast",
    "typeid",
    "goto",
    "thread_local",
    "asm",
    "__asm__",
    "wchar_t",
    "co_await",
    "co_yield",
    "co_return",
    "noexcept",
    "register",
    "__int128",
    "std",
    "double2",
    "double3",
    "double4",
}
_SCALARS = {
    "bool", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "half", "bfloat",
    "float", "size_t", "void",
}  # fmt: skip
_TYPES = _SCALARS | {
    f"{prefix}{scalar}{n}" for prefix in ("", "packed_") for scalar in _SCALARS for n in (2, 3, 4)
}


_POSITION_TYPES = {f"{scalar}{n}" for scalar in ("uint", "ushort") for n in ("", 2, 3)}
_INDICES = {
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
}


def _pointer_without_space(source: Source, tokens: list[int]) -> bool:
    depth = 0
    texts = []
    for at in tokens:
        text = source.text[at]
        depth += (text == "<") - (text == ">")
        if depth == 0 and text != ">":
            texts.append(text)
    if "=" in texts:
        texts = texts[: texts.index("=")]
    return ("*" in texts or "&" in texts) and not any(t in ADDRESS_SPACES for t in texts)


def _check_words(source: Source, errors: list[CompileError]) -> None:
    for i, text in enumerate(source.text):
        if source.kind[i] != "name" or text not in _ABSENT:
            continue
        if source.at(source.before(i)) in (".", "->"):
            continue
        errors.append(source.error(i, f"'{text}' is not available in Metal"))


def _check_lambdas(source: Source, errors: list[CompileError]) -> None:
    for i, text in enumerate(source.text):
        if text != "[" or source.at(i + 1) == "[" or source.at(i - 1) == "[":
            continue
        previous = source.before(i)
        opens = (
            previous < 0
            or source.text[previous] in "(,={};&|!?:"
            or (source.text[previous] == "return")
        )
        if opens and source.at(source.after(source.partner[i])) in ("(", "{"):
            errors.append(source.error(i, "lambda expressions are not available in Metal 3.1"))


def _check_pointers(source: Source, found: Declarations, errors: list[CompileError]) -> None:
    for function in found.functions:
        for parameter in function.parameters:
            tokens = []
            i = parameter.first
            while i < parameter.last:
                if source.is_attribute(i):
                    i = source.partner[i]
                elif source.kind[i] not in ("space", "directive"):
                    tokens.append(i)
                i += 1
            if _pointer_without_space(source, tokens):
                errors.append(
                    source.error(
                        tokens[0],
                        f"parameter '{parameter.name}' of '{function.name}' is a pointer or "
                        "reference without an address space",
                    )
                )
    for i, text in enumerate(source.text):
        # float* p = ...: a statement that begins with a type and has no address space
        if source.kind[i] != "name" or text not in _TYPES:
            continue
        star = source.after(i)
        name = source.after(star)
        if source.at(star) not in ("*", "&") or source.kind[min(name, len(source) - 1)] != "name":
            continue
        previous = source.before(i)
        if source.at(previous) == "const":
            previous = source.before(previous)
        if source.at(source.after(name)) in ("=", ";") and source.at(previous) in (
            "{",
            "}",
            ";",
            "",
        ):
            errors.append(
                source.error(
                    i, f"'{source.text[name]}' is a pointer or reference without an address space"
                )
            )


def _check_recursion(source: Source, found: Declarations, errors: list[CompileError]) -> None:
    definitions: dict[str, list[int]] = {}
    for k, function in enumerate(found.functions):
        definitions.setdefault(function.name, []).append(k)
    # Overloads and templates may name themselves without recursing.
    plain = {
        name: ks[0]
        for name, ks in definitions.items()
        if len(ks) == 1 and found.functions[ks[0]].template is None
    }
    calls: dict[str, set[str]] = {}
    for name, k in plain.items():
        body = found.functions[k].body
        calls[name] = {
            source.text[i]
            for i in range(body, source.partner[body])
            if source.text[i] in plain
            and source.at(source.after(i)) == "("
            and source.at(source.before(i)) not in (".", "->")
        }
    for name in plain:
        reached, pending = set(), list(calls[name])
        while pending:
            callee = pending.pop()
            if callee not in reached:
                reached.add(callee)
                pending.extend(calls[callee])
        if name in reached:
            at = found.functions[plain[name]].first
            errors.append(source.error(at, f"'{name}' is recursive, which Metal does not allow"))


def _check_kernels(source: Source, found: Declarations, errors: list[CompileError]) -> None:
    for function in found.functions:
        if not function.is_kernel:
            continue
        widths = set()
        for parameter in function.parameters:
            names = {a.name for a in parameter.attributes}
            is_position = any(
                n.startswith(
                    (
                        "thread_position",
                        "threads_per_grid",
                        "threads_per_threadgroup",
                        "threadgroup_position",
                        "threadgroups_per",
                        "dispatch_threads",
                    )
                )
                for n in names
            )
            if (is_position or names & _INDICES) and parameter.type.removeprefix(
                "const "
            ) not in _POSITION_TYPES:
                errors.append(
                    source.error(
                        parameter.first,
                        f"position attributes are uint or ushort, or vectors of them, and "
                        f"'{parameter.name}' is {parameter.type}",
                    )
                )
            if is_position and parameter.type[-1:] in ("2", "3"):
                widths.add(parameter.type[-1])
            pointer = "*" in parameter.type or "&" in parameter.type
            if not pointer and not names:
                errors.append(
                    source.error(
                        parameter.first,
                        f"parameter '{parameter.name}' of kernel "
                        f"'{function.name}' has neither an attribute nor an address space",
                    )
                )
        if len(widths) > 1:
            errors.append(
                source.error(
                    function.first,
                    f"the position attributes of kernel '{function.name}' "
                    "must all be vectors of the same size",
                )
            )


def check(source: Source, found: Declarations) -> None:
    """Raises CompileError with every offence."""
    errors: list[CompileError] = []
    _check_words(source, errors)
    _check_lambdas(source, errors)
    _check_pointers(source, found, errors)
    _check_recursion(source, found, errors)
    _check_kernels(source, found, errors)
    if errors:
        raise CompileError("\n".join(str(error) for error in errors))
