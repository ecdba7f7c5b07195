"""The entry points of kernels, and the table of them that the emulator's device reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .constants import FunctionConstant, accessor, needed
from .declarations import Declarations, Function, argument, text_argument

if TYPE_CHECKING:
    from .lexer import Source

_VECTORS = {
    "thread_position_in_grid": "thread_in_grid",
    "thread_position_in_threadgroup": "thread_in_threadgroup",
    "threadgroup_position_in_grid": "threadgroup_in_grid",
    "threads_per_threadgroup": "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup": "threads_per_threadgroup",
    "threadgroups_per_grid": "threadgroups_per_grid",
    "threads_per_grid": "threads_per_grid",
    "thread_index_in_threadgroup": "index_in_threadgroup",
    "simdgroups_per_threadgroup": "simdgroups",
}


@dataclass
class _Binding:
    kind: str  # buffer, threadgroup, value
    index: int
    name: str
    gate: str  # a function constant, or nothing
    value: str  # of a position, with {position} and {lane}


@dataclass
class Entry:
    """One kernel under one host name."""

    host_name: str
    template_id: str
    function: Function
    bindings: list[_Binding]


def _index(source: Source, function: Function, text: str, first: int) -> int:
    if not text.isdigit():
        raise source.error(first, f"an index of kernel '{function.name}' is no number: {text}")
    return int(text)


def _bindings(source: Source, function: Function) -> list[_Binding]:
    """Where each parameter comes from. Raises CompileError."""
    found = []
    taken: dict[tuple[str, int], str] = {}
    automatic = {"buffer": 0, "threadgroup": 0}
    for parameter in function.parameters:
        attributes = parameter.attributes
        gate = argument(attributes, "function_constant") or ""
        words = parameter.type.split()
        pointer = "*" in parameter.type or "&" in parameter.type
        binding = None
        if pointer:
            kind = "threadgroup" if "threadgroup" in words else "buffer"
            text = argument(attributes, kind)
            if text is None:
                while (kind, automatic[kind]) in taken:
                    automatic[kind] += 1
                index = automatic[kind]
            else:
                index = _index(source, function, text, parameter.first)
            if (kind, index) in taken:
                raise source.error(
                    parameter.first,
                    f"'{taken[kind, index]}' and '{parameter.name}' of kernel '{function.name}' "
                    f"are both {kind}({index})",
                )
            if index > 30:
                raise source.error(parameter.first, f"{kind}({index}) is past the last index, 30")
            taken[kind, index] = parameter.name
            binding = _Binding(kind, index, parameter.name, gate, "")
        else:
            for attribute in attributes:
                value = _VECTORS.get(attribute.name)
                if value is not None:
                    binding = _Binding("value", 0, parameter.name, "", f"{{position}}.{value}")
                elif attribute.name == "thread_index_in_simdgroup":
                    binding = _Binding("value", 0, parameter.name, "", "{lane}")
                elif attribute.name == "simdgroup_index_in_threadgroup":
                    binding = _Binding("value", 0, parameter.name, "", "{simdgroup}")
                elif attribute.name in ("threads_per_simdgroup", "thread_execution_width"):
                    binding = _Binding("value", 0, parameter.name, "", "32u")
        if binding is None:
            raise source.error(
                parameter.first,
                f"parameter '{parameter.name}' of kernel '{function.name}' is of no supported kind",
            )
        found.append(binding)
    return found


def entries(source: Source, found: Declarations) -> list[Entry]:
    """Every kernel that has a host name. Raises CompileError."""
    result = []
    by_name = {f.qualified: f for f in found.functions if f.is_kernel}
    by_short_name = {f.name: f for f in found.functions if f.is_kernel}
    for function in by_name.values():
        if function.template is None:
            host = text_argument(function.attributes, "host_name") or function.name
            result.append(Entry(host, function.qualified, function, _bindings(source, function)))
    for instantiation in found.instantiations:
        base = instantiation.template_id.split("<")[0].strip()
        match = by_name.get(base) or by_short_name.get(base.split("::")[-1])
        if match is None:
            raise source.error(instantiation.first, f"there is no kernel template '{base}'")
        identifier = match.qualified + instantiation.template_id[len(base) :]
        result.append(Entry(instantiation.host_name, identifier, match, _bindings(source, match)))
    seen: set[str] = set()
    for entry in result:
        if entry.host_name in seen:
            raise source.error(entry.function.first, f"two kernels are named '{entry.host_name}'")
        seen.add(entry.host_name)
    return result


def _call(entry: Entry, k: int, names: dict[str, str]) -> str:
    arguments = []
    for i, binding in enumerate(entry.bindings):
        kind = f"signature_{k}::parameter<{i}>"
        if binding.kind == "value":
            value = binding.value.format(**names)
            arguments.append(f"msl::position_value<{kind}>({value})")
        else:
            place = names[binding.kind].format(index=binding.index)
            arguments.append(f"msl::bound<{kind}>::from({place})")
    return f"(&::{entry.template_id})({', '.join(arguments)});"


def _signature(entry: Entry, k: int) -> str:
    return f"typedef msl::signature<decltype(&::{entry.template_id})> signature_{k};"


def emulator_table(
    source: Source, found: Declarations, constants: dict[str, FunctionConstant], all_: list[Entry]
) -> str:
    """C++ that defines softmetal_module."""
    own = [c for c in constants.values() if c.index >= 0]
    names = {
        "position": "lane.position",
        "lane": "lane.index",
        "simdgroup": "lane.simdgroup_index",
        "buffer": "in.buffer[{index}]",
        "threadgroup": "in.threadgroup[{index}]",
    }
    lines = ['#line 1 "entries"', "namespace msl_entries {"]
    rows = []
    for k, entry in enumerate(all_):
        lines.append(_signature(entry, k))
        lines.append(
            f"static void run_{k}([[maybe_unused]] const softmetal::Invocation& in, "
            f"[[maybe_unused]] const softmetal::Lane& lane) {{ {_call(entry, k, names)} }}"
        )
        arguments = []
        for i, binding in enumerate(entry.bindings):
            if binding.kind == "value":
                continue
            gate = "nullptr"
            if binding.gate:
                gate = f"gate_{k}_{i}"
                lines.append(f"static bool {gate}() {{ return {accessor(binding.gate)}(); }}")
            kind = f"signature_{k}::parameter<{i}>"
            arguments.append(
                f"{{softmetal::ArgumentKind::k{binding.kind.capitalize()}, {binding.index}, "
                f'"{binding.name}", msl::bound<{kind}>::size, msl::alignment<{kind}>, '
                f"msl::bound<{kind}>::writable, {gate}}}"
            )
        required = [
            str(next(n for n, c in enumerate(own) if c.name == name))
            for name in needed(source, found, constants, entry.function)
        ]
        lines.append(
            f"static const softmetal::Argument arguments_{k}[] = "
            f"{{{', '.join([*arguments, '{}'])}}};"
        )
        lines.append(
            f"static const softmetal::u32 constants_{k}[] = {{{', '.join([*required, '0'])}}};"
        )
        threads = argument(entry.function.attributes, "max_total_threads_per_threadgroup") or "0"
        rows.append(
            f'{{"{entry.host_name}", run_{k}, (const void*)&::{entry.template_id}, arguments_{k}, '
            f"{len(arguments)}, {threads}, constants_{k}, {len(required)}}}"
        )
    fields = [f'{{"{c.name}", {c.index}, {c.data_type}}}' for c in own]
    lines += [
        f"static const softmetal::Kernel kernels[] = {{{', '.join([*rows, '{}'])}}};",
        f"static const softmetal::FunctionConstant constants[] = {{{', '.join([*fields, '{}'])}}};",
        "}",
        'extern "C" {',
        '__attribute__((visibility("hidden"))) softmetal::Runtime softmetal_runtime;',
        'extern __attribute__((weak, visibility("hidden"))) softmetal::ThreadgroupVariable '
        "__start_softmetal_variables[], __stop_softmetal_variables[];",
        "extern softmetal::Module softmetal_module;",
        "softmetal::Module softmetal_module = {softmetal::kAbiVersion, &softmetal_runtime, "
        f"msl_entries::kernels, {len(rows)}, msl_entries::constants, {len(fields)}, "
        "__start_softmetal_variables, __stop_softmetal_variables};",
        "}",
    ]
    return "\n".join(lines) + "\n"


def ptx_entries(constants: dict[str, FunctionConstant], all_: list[Entry]) -> str:
    """C++ with a GPU entry for each kernel, of its host name, that takes msl::Arguments."""
    del constants
    names = {
        "position": "place",
        "lane": "(place.index_in_threadgroup & 31)",
        "simdgroup": "(place.index_in_threadgroup / 32)",
        "buffer": "arguments.buffer[{index}]",
        "threadgroup": "(unsigned char*)msl_dynamic + arguments.threadgroup[{index}]",
    }
    lines = [
        '#line 1 "entries"',
        "extern __attribute__((address_space(3), aligned(16))) unsigned char msl_dynamic[];",
        "namespace msl_entries {",
    ]
    for k, entry in enumerate(all_):
        head = f"__attribute__((nvptx_kernel)) void entry_{k}(msl::Arguments arguments)"
        lines.append(_signature(entry, k))
        lines.append(f'{head} asm("{entry.host_name}");')
        lines.append(
            f"{head} "
            "{ [[maybe_unused]] const msl::Position place = msl::position(arguments); "
            f"{_call(entry, k, names)} }}"
        )
    return "\n".join([*lines, "}"]) + "\n"
