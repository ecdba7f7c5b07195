"""JSON as the project reads and writes it: typed access with named errors, and two encodings."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

ErrorFactory = Callable[[str], Exception]

_DIGITS = re.compile(r"([0-9]+)")


class Fields:
    """One JSON object whose keys are read by type.

    `where` names the object in messages; `error` makes the exception that a missing or mistyped
    key raises. A key whose value is null counts as absent. Unknown keys are never looked at.
    """

    def __init__(self, value: object, where: str, error: ErrorFactory) -> None:
        if not isinstance(value, dict):
            raise error(f"{where} must be a JSON object, found {_kind(value)}")
        self._values: dict[str, Any] = value
        self.where = where
        self._error = error

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def as_dict(self) -> dict[str, Any]:
        """The object itself."""
        return self._values

    def fail(self, message: str) -> NoReturn:
        """Raise this object's error with `message` about it."""
        raise self._error(f"{self.where}: {message}")

    def raw(self, key: str) -> object:
        """The value of a required key, whatever its type."""
        if key not in self:
            self.fail(f"key '{key}' is missing")
        return self._values[key]

    def integer(self, key: str, minimum: int = 0, maximum: int = 2**63 - 1) -> int:
        """A required integer in [minimum, maximum]; `4.0` counts as 4, booleans do not count."""
        value = _as_integer(self.raw(key))
        if value is None:
            self._mistyped(key, "an integer")
        if not minimum <= value <= maximum:
            self.fail(f"key '{key}' is {value}, outside [{minimum}, {maximum}]")
        return value

    def number(self, key: str) -> float:
        """A required finite number, as a double."""
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._mistyped(key, "a number")
        if (isinstance(value, int) and abs(value) > 2**1023) or not math.isfinite(value):
            self.fail(f"key '{key}' does not fit a double")
        return float(value)

    def boolean(self, key: str) -> bool:
        """A required true or false."""
        value = self.raw(key)
        if not isinstance(value, bool):
            self._mistyped(key, "true or false")
        return value

    def text(self, key: str) -> str:
        """A required string that is valid Unicode."""
        value = self.raw(key)
        if not isinstance(value, str) or not is_unicode(value):
            self._mistyped(key, "a string")
        return value

    def integers(self, key: str) -> tuple[int, ...]:
        """A required array of integers of any sign."""
        values = [_as_integer(v) for v in self._array(key)]
        if any(v is None for v in values):
            self._mistyped(key, "an array of integers")
        return tuple(v for v in values if v is not None)

    def texts(self, key: str) -> tuple[str, ...]:
        """A required array of strings."""
        values = self._array(key)
        if not all(isinstance(v, str) for v in values):
            self._mistyped(key, "an array of strings")
        return tuple(values)

    def object(self, key: str) -> "Fields":
        """A required object."""
        return Fields(self.raw(key), f"{self.where}: '{key}'", self._error)

    def objects(self, key: str) -> list["Fields"]:
        """A required array of objects."""
        return [
            Fields(value, f"{self.where}: '{key}'[{i}]", self._error)
            for i, value in enumerate(self._array(key))
        ]

    def _array(self, key: str) -> list[Any]:
        value = self.raw(key)
        if not isinstance(value, list):
            self._mistyped(key, "an array")
        return value

    def _mistyped(self, key: str, wanted: str) -> NoReturn:
        self.fail(f"key '{key}' must be {wanted}, found {_kind(self._values[key])}")


def parse(data: bytes, where: str, error: ErrorFactory, *, unique_keys: bool = False) -> Fields:
    """Parse UTF-8 JSON bytes whose top level is an object.

    With `unique_keys`, a key written twice in one object is refused. NaN and Infinity are refused.
    Raises what `error` makes.
    """

    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=refuse_constant,
            object_pairs_hook=_unique if unique_keys else None,
        )
    except DuplicateKeyError as exc:
        raise error(f"{where}: key '{exc}' is written twice") from None
    except (ValueError, RecursionError) as exc:
        raise error(f"{where} is not valid JSON ({exc})") from None
    return Fields(value, where, error)


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which Python's decoder would let through."""
    raise ValueError(f"{name} is not JSON")


class DuplicateKeyError(Exception):
    """A JSON object names one key twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise DuplicateKeyError(key)
        result[key] = value
    return result


def pretty(value: Mapping[str, Any]) -> bytes:
    """The on-disk form of manifest, layout and receipt.

    Two-space indents, `"key" : value`, no trailing newline, `/` and non-ASCII as they are, and
    keys in the order of Apple's sorted serializer: case-insensitive, digit runs by value.
    """
    return "".join(pretty_parts(value)).encode("utf-8")


def pretty_parts(value: Mapping[str, Any]) -> Iterator[str]:
    """The text of `pretty` piece by piece.

    An iterator among the values is written as an array, one item a piece.
    """
    if not value:
        yield "{}"
        return
    before = "{\n  "
    for key in sorted(value, key=_sort_key):
        yield f"{before}{json.dumps(key, ensure_ascii=False)} : "
        if isinstance(value[key], Iterator):
            yield from _array_parts(value[key])
        else:
            yield _pretty(value[key], "\n  ")
        before = ",\n  "
    yield "\n}"


@dataclass(frozen=True)
class Pretty:
    """JSON text in the form of `pretty`, to be used as a value more than once."""

    text: str


def pretty_value(value: object, depth: int) -> Pretty:
    """The text of a value that stands so many objects and arrays deep."""
    return Pretty(_pretty(value, "\n" + "  " * depth))


def _array_parts(items: Iterator[Any]) -> Iterator[str]:
    before, end = "[\n    ", "[]"
    for item in items:
        yield before + _pretty(item, "\n    ")
        before, end = ",\n    ", "\n  ]"
    yield end


def compact(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Compact JSON with sorted keys; `/` and non-ASCII characters are written as they are.

    Raises:
        ValueError: the value holds NaN or an infinity, or contains itself.
        TypeError: the value holds something JSON has no form for.
    """
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def is_unicode(value: str) -> bool:
    """Whether a string can be written as UTF-8 (JSON escapes can smuggle in lone surrogates)."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _pretty(value: object, newline: str) -> str:
    inner = newline + "  "
    if isinstance(value, Pretty):
        return value.text
    if isinstance(value, Mapping):
        items = [
            f"{json.dumps(key, ensure_ascii=False)} : {_pretty(value[key], inner)}"
            for key in sorted(value, key=_sort_key)
        ]
        return "{" + inner + ("," + inner).join(items) + newline + "}" if items else "{}"
    if isinstance(value, list | tuple):
        parts = [_pretty(v, inner) for v in value]
        return "[" + inner + ("," + inner).join(parts) + newline + "]" if parts else "[]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _sort_key(key: str) -> tuple[list[tuple[int, int, str]], str]:
    weights: list[tuple[int, int, str]] = []
    for i, part in enumerate(_DIGITS.split(key)):
        if i % 2:
            digits = part.lstrip("0")  # compared as text: Python reads no number of any length
            weights.append((ord("0"), len(digits), digits))
        else:
            weights += [(ord(c), 0, "") for c in part.lower()]
    return weights, key


def _as_integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if isinstance(value, int) else None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"the number {value:.40}" if isinstance(value, float) else f"the number {value}"[:60]
    return names.get(type(value), "null")
