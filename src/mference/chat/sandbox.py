"""A jinja2 environment in which a chat template cannot run for ever or fill the memory.

A template comes with a checkpoint, so it is data from outside. jinja2's own sandbox keeps it from
Python's internals but not from `{% for %}` in `{% for %}` in `{% for %}`, or from doubling a string
forty times. Here every loop iteration and call is charged to a budget, and every operation that
can make a long value is checked, before it runs where its size can be known and after it otherwise.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

Value = Any  # whatever a template computes with

MAX_STEPS = 2_000_000
MAX_LENGTH = 1 << 24
MAX_NUMBER = 100_000
# Formatting with a width asks for any amount of memory in one call.
_REFUSED_FILTERS = ("format", "center", "wordwrap", "urlize", "xmlattr", "pprint", "filesizeformat")
_REFUSED_METHODS = ("format", "format_map")

_steps: ContextVar[int] = ContextVar("_steps")


class LimitExceededError(Exception):
    """A template asked for more steps or longer values than a chat template ever needs."""


class TemplateRefusalError(Exception):
    """The template itself called `raise_exception`."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """What `transformers` gives a template (trimmed blocks, `tojson`, loop controls), bounded."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        self.filters = {
            name: _checked_filter(name, function)
            for name, function in {**self.filters, "tojson": _tojson}.items()
            if name not in _REFUSED_FILTERS
        }
        self.filters["_metered"] = _metered
        self.filters["_bounded"] = _bounded
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def metered(self, source: str) -> jinja2.Template:
        """Compile a template with every loop counted and every `~` checked.

        Raises:
            jinja2.TemplateSyntaxError: the source is not a template.
        """
        return self.from_string(_Instrumented().visit(self.parse(source)))

    def call(self, context: Context, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
        """Charge one step for each call, and bound its number arguments and its result."""
        charge(1)
        _check_numbers(args, kwargs)
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            _check_growth(name, owner, args)
        return _bounded(super().call(context, obj, *args, **kwargs))

    def is_safe_attribute(self, obj: Value, attr: str, value: Value) -> bool:
        """Keep string formatting methods out of reach besides what the sandbox refuses."""
        if isinstance(obj, str) and attr in _REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Context, operator: str, left: Value, right: Value) -> Value:
        """Refuse operators whose result would be too long, before they run."""
        if operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            _check_length(len(left) + len(right))
        elif operator == "*" and isinstance(left, Sized) != isinstance(right, Sized):
            sized, times = (left, right) if isinstance(left, Sized) else (right, left)
            _check_length(len(sized) * int(times))
        elif operator == "%" and isinstance(left, str):
            raise LimitExceededError("uses % formatting, which is not available to chat templates")
        elif operator in ("*", "**"):
            _check_numbers((left, right), {})
        return super().call_binop(context, operator, left, right)


def with_budget(render: Callable[[], str]) -> str:
    """Run `render` with a fresh budget of steps."""
    token = _steps.set(MAX_STEPS)
    try:
        return render()
    finally:
        _steps.reset(token)


def charge(steps: int) -> None:
    """Take steps from the budget of the running render."""
    left = _steps.get() - steps
    if left < 0:
        raise LimitExceededError(f"needs more than {MAX_STEPS:,} steps")
    _steps.set(left)


def joined(pieces: Iterable[str]) -> str:
    """The pieces of an output in one string, no longer than a prompt can be."""
    kept = []
    length = 0
    for piece in pieces:
        length += len(piece)
        _check_length(length)
        kept.append(piece)
    return "".join(kept)


def _metered(iterable: Iterable[Value]) -> Iterator[Value]:
    for item in iterable:
        charge(1)
        yield item


def _bounded(value: Value) -> Value:
    if isinstance(value, str | bytes | list | tuple):
        _check_length(len(value))
    return value


def _check_length(length: int) -> None:
    if length > MAX_LENGTH:
        raise LimitExceededError(f"makes a value longer than {MAX_LENGTH:,} characters")


def _check_numbers(args: Iterable[Value], kwargs: Mapping[str, Value]) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise LimitExceededError(f"computes with a number over {MAX_NUMBER:,}")


def _check_growth(name: str, text: str, args: tuple[Value, ...]) -> None:
    """Bound the string operations whose result is a product of two lengths."""
    if name == "replace" and len(args) >= 2:
        _check_length(len(text) + text.count(str(args[0])) * len(str(args[1])))
    elif name == "join" and args and isinstance(args[0], Sized):
        _check_length(len(text) * len(args[0]))


def _checked_filter(name: str, function: Callable[..., Value]) -> Callable[..., Value]:
    @functools.wraps(function)  # also copies the mark that asks jinja2 for the environment
    def checked(*args: Value, **kwargs: Value) -> Value:
        charge(1)
        given = args[1:] if hasattr(function, "jinja_pass_arg") else args
        _check_numbers(given[1:], kwargs)
        if name == "replace" and given:
            _check_growth(name, str(given[0]), given[1:])
        elif name == "join" and given and isinstance(given[0], list | tuple):
            _check_length(sum(len(item) for item in given[0] if isinstance(item, str)))
            _check_growth(name, str(given[1]) if len(given) > 1 else "", given[:1])
        return _bounded(function(*args, **kwargs))

    return checked


class _Instrumented(NodeTransformer):
    """Puts a counter around what every `{% for %}` runs over, and a check around every `~`."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 (named after the node)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_metered")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "_bounded")


def _filtered(expression: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(
        expression, name, [], [], None, None,
        lineno=expression.lineno, environment=expression.environment,
    )  # fmt: skip


def _tojson(
    value: Value,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes; jinja2's own filter would escape `<`, `>`, `&` and `'`."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefusalError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
