"""A jinja2 environment in which a chat template cannot run for ever or fill the memory.

A template comes with a checkpoint, so it is data from outside. jinja2's own sandbox keeps it from
Python's internals but not from `{% for %}` in `{% for %}` in `{% for %}`, or from doubling a string
forty times. Here every loop iteration and call is charged to a budget of steps and of time, and
every operation that can make a long value is checked, before it runs if its size can be known.
"""

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes, pass_eval_context
from jinja2.ext import Extension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

Value = Any  # whatever a template computes with

# Real templates look back over the whole conversation at every message: 3,000 messages fit.
MAX_STEPS = 10_000_000
MAX_SECONDS = 20.0
MAX_LENGTH = 1 << 24
MAX_WRITTEN = 8 * MAX_LENGTH  # text passes through one macro after another on its way out
MAX_NUMBER = 100_000
MAX_JSON_INDENT = 16
# One call of these can ask for any amount of memory, or makes nothing a prompt needs.
_REFUSED_FILTERS = ("format", "center", "wordwrap", "urlize", "xmlattr", "pprint", "filesizeformat")
_STRUCTURAL_FILTERS = frozenset(
    ["attr", "batch", "count", "d", "default", "dictsort", "first", "groupby", "items", "join",
     "last", "length", "list", "map", "max", "min", "random", "reject", "rejectattr", "reverse",
     "select", "selectattr", "slice", "sort", "sum", "unique"]
)  # fmt: skip
_REFUSED_METHODS = ("format", "format_map", "expandtabs", "translate")


class LimitExceededError(Exception):
    """A template asked for more steps or longer values than a chat template ever needs."""


class TemplateRefusalError(Exception):
    """The template itself called `raise_exception`."""


class GenerationBlock(Extension):
    """`{% generation %}` marks an assistant's text for training; a prompt just has the text."""

    tags = {"generation"}  # noqa: RUF012 (typed so by jinja2)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """What `transformers` gives a template (trimmed blocks, `tojson`, loop controls), bounded."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlock],
        )
        self.filters = {
            name: _checked_filter(name, function)
            for name, function in {**self.filters, "tojson": _tojson, "join": _join}.items()
            if name not in _REFUSED_FILTERS
        }
        self.filters["_metered"] = _metered
        self.filters["_bounded"] = _bounded
        self.filters["_weighed"] = _weighed
        self.filters["_written"] = _written
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def metered(self, source: str) -> jinja2.Template:
        """Compile a template with every loop and output counted and every `~` checked.

        Raises:
            jinja2.TemplateSyntaxError: the source is not a template.
        """
        return self.from_string(_Instrumented().visit(self.parse(source)))

    def call(self, context: Context, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
        """Charge one step for each call, and bound its number arguments and its result.

        The template's own macros take any number, such as one of a tool's result.
        """
        _budget.get().charge()
        if not isinstance(obj, Macro):
            _check_numbers(args, kwargs)
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            _check_growth(name, owner, args)
        return _bounded(super().call(context, obj, *args, **kwargs))

    def wrap_str_format(self, value: Value) -> None:
        """Leave `str.format` to `is_safe_attribute`, which jinja2's own wrapper would bypass."""

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


class _Budget:
    """What one render may still spend."""

    def __init__(self) -> None:
        self._steps = 0
        self._written = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def charge(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise LimitExceededError(f"needs more than {MAX_STEPS:,} steps")
        if self._steps % 256 == 0 and time.monotonic() > self._deadline:
            raise LimitExceededError(f"needs more than {MAX_SECONDS:g} seconds")

    def write(self, length: int) -> None:
        self._written += length
        if self._written > MAX_WRITTEN:
            raise LimitExceededError(f"writes more than {MAX_WRITTEN:,} characters")


_budget: ContextVar[_Budget] = ContextVar("_budget")


def with_budget(render: Callable[[], str]) -> str:
    """Run `render` with a fresh budget."""
    token = _budget.set(_Budget())
    try:
        return render()
    finally:
        _budget.reset(token)


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
    budget = _budget.get()
    for item in iterable:
        budget.charge()
        yield item


def _bounded(value: Value) -> Value:
    if isinstance(value, str | bytes | list | tuple):
        _check_length(len(value))
    return value


def _weighed(value: Value) -> Value:
    _check_length(_weight(value))
    return value


def _written(value: Value) -> Value:
    _budget.get().write(_weight(value))
    return value


def _weight(value: Value) -> int:
    """About the length of a value as text. Of a value shared many times, each counts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_weight(key) + _weight(item) + 4 for key, item in value.items())
    if isinstance(value, list | tuple):
        total = 0
        for item in value:
            total += _weight(item) + 2
            _check_length(total)
        return total
    return 1


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
    elif name == "join" and args and isinstance(args[0], list | tuple):
        _check_length(_weight(args[0]) + len(text) * len(args[0]))
    elif name == "indent":
        width = max((int(arg) for arg in args if isinstance(arg, int)), default=MAX_JSON_INDENT)
        _check_length(len(text) + (text.count("\n") + 1) * width)


def _checked_filter(name: str, function: Callable[..., Value]) -> Callable[..., Value]:
    @functools.wraps(function)  # also copies the mark that asks jinja2 for the environment
    def checked(*args: Value, **kwargs: Value) -> Value:
        _budget.get().charge()
        given = args[1:] if hasattr(function, "jinja_pass_arg") else args
        _check_numbers(given[1:], kwargs)
        if name in ("replace", "indent") and given:
            _check_growth(name, str(given[0]), (*given[1:], *kwargs.values()))
        elif given and name not in _STRUCTURAL_FILTERS:
            _weighed(given[0])  # it is about to become text
        return _bounded(function(*args, **kwargs))

    return checked


class _Instrumented(NodeTransformer):
    """Puts counters around loops' iterables and all output, and a check around every `~`."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 (named after the node)
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "_metered")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(piece, "_written") for piece in node.nodes]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filtered(piece, "_weighed") for piece in node.nodes]
        return _filtered(node, "_bounded")


def _filtered(expression: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(
        expression, name, [], [], None, None,
        lineno=expression.lineno, environment=expression.environment,
    )  # fmt: skip


@pass_eval_context
def _join(
    context: nodes.EvalContext, value: Iterable[Value], d: str = "", attribute: str | None = None
) -> str:
    """Join as jinja2's own filter does, checking the length first."""
    pick = make_attrgetter(context.environment, attribute) if attribute is not None else None
    texts = [str(_weighed(pick(item) if pick else item)) for item in value]
    _check_length(_weight(texts) + len(d) * len(texts))
    return str(d).join(texts)


def _tojson(
    value: Value,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes; jinja2's own filter would escape `<`, `>`, `&` and `'`."""
    if indent is not None and indent > MAX_JSON_INDENT:
        raise LimitExceededError(f"indents JSON by more than {MAX_JSON_INDENT}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateRefusalError(message)


def _strftime_now(pattern: str) -> str:
    if any(character.isdigit() for character in pattern):  # a width can be any number
        raise LimitExceededError("formats a date with a width")
    return datetime.now().astimezone().strftime(pattern)
