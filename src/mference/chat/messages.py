"""Chat messages: plain OpenAI-style dicts in, checked frozen values out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mference.chat import json_text
from mference.errors import TemplateError

ROLES = ("system", "developer", "user", "assistant", "tool")


class InvalidMessagesError(TemplateError):
    """A message does not have the shape its role needs, or is out of place."""


@dataclass(frozen=True)
class FunctionCall:
    """A tool call in an assistant message of the history."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True)
class Message:
    """One turn. `content` is None only beside tool calls, a mapping only in a tool result."""

    role: str
    content: str | Mapping[str, Any] | None
    tool_calls: tuple[FunctionCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = field(default=None, repr=False)

    def for_template(self) -> dict[str, Any]:
        """The dict that a chat template sees: absent keys are left out, arguments are mappings."""
        seen: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            seen["tool_calls"] = [
                {
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                    **({"id": call.id} if call.id is not None else {}),
                }
                for call in self.tool_calls
            ]
        optional = {
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "reasoning_content": self.reasoning,
        }
        seen.update((key, value) for key, value in optional.items() if value is not None)
        return seen


MessageLike = Message | Mapping[str, Any]


def conversation(messages: Sequence[MessageLike], source: str = "messages") -> tuple[Message, ...]:
    """Check messages given as `Message` values or OpenAI-style dicts.

    Raises:
        InvalidMessagesError: naming `source`, the message's index and the key at fault.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidMessagesError(
            f"{source}: expected a list of messages, got {type(messages).__name__}; "
            'write [{"role": "user", "content": "..."}]'
        )
    return tuple(
        m if isinstance(m, Message) else _message(m, f"{source}[{i}]")
        for i, m in enumerate(messages)
    )


def read_messages(path: str | Path) -> tuple[Message, ...]:
    """Read a JSON file that holds an array of {role, content} objects.

    Raises:
        ConfigError: the file cannot be read, is larger than 64 MiB, not UTF-8 or not JSON.
        InvalidMessagesError: the JSON is not an array of messages; says which message and key.
    """
    messages = conversation(json_text.read_file(path, "messages"), str(path))
    if not messages:
        raise InvalidMessagesError(f"{path}: there is no message to answer")
    return messages


def _message(value: object, where: str) -> Message:
    if not isinstance(value, Mapping):
        raise InvalidMessagesError(f"{where}: expected an object, got {_kind(value)}")
    role = value.get("role")
    if role not in ROLES:
        given = "missing" if role is None else repr(role)
        raise InvalidMessagesError(f"{where}.role: {given}; use one of {', '.join(ROLES)}")
    calls = _calls(value.get("tool_calls"), f"{where}.tool_calls")
    if calls and role != "assistant":
        raise InvalidMessagesError(
            f"{where}.tool_calls: only an assistant message may hold tool calls"
        )
    content = value.get("content")
    if content is None:
        if not calls:
            raise InvalidMessagesError(f"{where}.content: missing; the role {role} needs text")
    elif not (role == "tool" and isinstance(content, Mapping)):
        content = _text(content, f"{where}.content")
    reasoning = value.get("reasoning_content")
    return Message(
        role,
        content,
        calls,
        _optional_text(value, "tool_call_id", where),
        _optional_text(value, "name", where),
        reasoning if isinstance(reasoning, str) else None,
    )


def _text(content: object, where: str) -> str:
    """The text of a string or of a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise InvalidMessagesError(
            f"{where}: expected text or a list of text parts, {_got(content)}"
        )
    pieces = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if kind != "text" or not isinstance(text, str):
            got = f"type {kind!r}" if kind not in (None, "text") else _kind(part)
            raise InvalidMessagesError(
                f'{where}[{i}]: only parts {{"type": "text", "text": "..."}} are read, got {got}'
            )
        pieces.append(text)
    return "".join(pieces)


def _calls(value: object, where: str) -> tuple[FunctionCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidMessagesError(f"{where}: expected a list of tool calls, {_got(value)}")
    return tuple(_call(call, f"{where}[{i}]") for i, call in enumerate(value))


def _call(value: object, where: str) -> FunctionCall:
    if not isinstance(value, Mapping):
        raise InvalidMessagesError(f"{where}: expected an object, {_got(value)}")
    function = value.get("function", value)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InvalidMessagesError(f"{where}: a tool call needs function.name")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json_text.decode(arguments or "{}")
        except ValueError as error:
            raise InvalidMessagesError(f"{where}.arguments: not valid JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise InvalidMessagesError(f"{where}.arguments: expected an object, {_got(arguments)}")
    return FunctionCall(name, arguments, _optional_text(value, "id", where))


def _optional_text(value: Mapping[str, Any], key: str, where: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidMessagesError(f"{where}.{key}: expected text, {_got(found)}")
    return found


def _got(value: object) -> str:
    return f"got {_kind(value)}"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return "an object" if isinstance(value, Mapping) else type(value).__name__
