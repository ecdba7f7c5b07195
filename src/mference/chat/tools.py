"""Tools offered to the model: OpenAI-style function declarations, checked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mference.errors import TemplateError

_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


class InvalidToolsError(TemplateError):
    """A tool declaration cannot be offered to the model."""


@dataclass(frozen=True)
class Tool:
    """A function the model may call; `parameters` is a JSON schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


ToolLike = Tool | Mapping[str, Any]


def offered(tools: Sequence[ToolLike] | None) -> tuple[Tool, ...]:
    """Check tools given as `Tool`, `{"type": "function", "function": {...}}` or the inner object.

    Raises:
        InvalidToolsError: naming the tool's index and the fault; two tools of one name are one.
    """
    if tools is not None and (isinstance(tools, str | bytes) or not isinstance(tools, Sequence)):
        raise InvalidToolsError(f"tools: expected a list, got {type(tools).__name__}")
    checked = [
        tool if isinstance(tool, Tool) else _tool(tool, f"tools[{i}]")
        for i, tool in enumerate(tools or ())
    ]
    names = [tool.name for tool in checked]
    for i, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise InvalidToolsError(
                f"tools[{i}]: name {name!r} is not 1 to 64 letters, digits and _"
            )
        if name in names[:i]:
            raise InvalidToolsError(f"tools[{i}]: a second tool named {name!r}")
    return tuple(checked)


def _tool(value: object, where: str) -> Tool:
    if not isinstance(value, Mapping):
        raise InvalidToolsError(f"{where}: expected an object, got {type(value).__name__}")
    if value.get("type", "function") != "function":
        raise InvalidToolsError(f"{where}: type {value['type']!r} is not supported; use 'function'")
    function = value.get("function", value)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidToolsError(f"{where}: a tool needs function.name")
    description = function.get("description")
    parameters = function.get("parameters")
    if description is not None and not isinstance(description, str):
        raise InvalidToolsError(f"{where}.function.description: expected text")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise InvalidToolsError(f"{where}.function.parameters: expected a JSON schema object")
    return Tool(function["name"], description or "", parameters or {})
