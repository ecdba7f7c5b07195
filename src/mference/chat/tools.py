"""Tools offered to the model: OpenAI-style function declarations, checked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mference.chat import json_text
from mference.errors import TemplateError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class InvalidToolsError(TemplateError):
    """A tool declaration cannot be offered to the model."""


@dataclass(frozen=True)
class Tool:
    """A function the model may call; `parameters` is a JSON schema of an object.

    `given` is the whole declaration that it was read from, for templates that write it as it is.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def for_template(self) -> dict[str, Any]:
        """The declaration that a chat template sees."""
        if self.given is not None:
            return dict(self.given)
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


ToolLike = Tool | Mapping[str, Any]


def offered(tools: Sequence[ToolLike] | None, source: str = "tools") -> tuple[Tool, ...]:
    """Check tools given as `Tool`, `{"type": "function", "function": {...}}` or the inner object.

    Raises:
        InvalidToolsError: naming `source`, the tool's index and the fault, such as a name that
            another tool has.
    """
    if tools is not None and (isinstance(tools, str | bytes) or not isinstance(tools, Sequence)):
        raise InvalidToolsError(f"{source}: expected a list, got {type(tools).__name__}")
    checked = [
        tool if isinstance(tool, Tool) else _tool(tool, f"{source}[{i}]")
        for i, tool in enumerate(tools or ())
    ]
    names = [tool.name for tool in checked]
    for i, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise InvalidToolsError(
                f"{source}[{i}]: name {name!r} is not 1 to 64 letters, digits, _ and -"
            )
        if name in names[:i]:
            raise InvalidToolsError(f"{source}[{i}]: a second tool named {name!r}")
    return tuple(checked)


def read_tools(path: str | Path) -> tuple[Tool, ...]:
    """Read a JSON file that holds an array of OpenAI-style function declarations.

    Raises:
        ConfigError: the file cannot be read, is larger than 64 MiB, not UTF-8 or not JSON.
        InvalidToolsError: the JSON is not an array of declarations; says which one and the fault.
    """
    tools = offered(json_text.read_file(path, "tools"), str(path))
    if not tools:
        raise InvalidToolsError(f"{path}: there is no tool to offer")
    return tools


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
    if "function" not in value:
        given = {"type": "function", "function": {k: v for k, v in value.items() if k != "type"}}
    else:
        given = {**({} if "type" in value else {"type": "function"}), **value}
    return Tool(function["name"], description or "", parameters or {}, given)
