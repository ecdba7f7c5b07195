"""JSON schemas in the narrow form that Gemma 4's template can declare.

The template upper-cases each property's `type`, so every schema must have one type name: unions
take their first branch that is not null, `allOf` merges, local references are put in place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mference.chat.json_text import MAX_DEPTH, Json
from mference.chat.tools import InvalidToolsError, Tool

# References can repeat a part many times over; no schema a model can use is this large.
MAX_SCHEMAS = 10_000
_UNIONS = ("anyOf", "oneOf")
_DEFINITIONS = ("$defs", "definitions")


def declarable(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """The tools with their parameter schemas flattened.

    Raises:
        InvalidToolsError: a schema is nested deeper than 64 levels, far too large, or none; or a
            name holds a hyphen.
    """
    for tool in tools:
        if "-" in tool.name:
            raise InvalidToolsError(
                f"tool {tool.name!r}: Gemma's calls have no '-' in names; rename the tool"
            )
    return tuple(replace(tool, parameters=_parameters(tool), given=None) for tool in tools)


def flattened(schema: Mapping[str, Json]) -> dict[str, Json]:
    """A schema in which it and every schema inside it has one string `type`. Idempotent.

    Raises:
        InvalidToolsError: nested deeper than 64 levels, over 10,000 schemas in all, or a key of
            the wrong type.
    """
    return _Flattener(schema).flatten(schema, ())


def _parameters(tool: Tool) -> dict[str, Json]:
    if not tool.parameters:
        return {}
    try:
        flat = flattened(tool.parameters)
    except InvalidToolsError as error:
        raise InvalidToolsError(f"tool {tool.name!r}: {error}") from error
    return flat if "properties" in flat else {**flat, "type": "object"}


class _Flattener:
    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._schemas = 0

    def flatten(self, schema: Json, inside: tuple[str, ...], depth: int = 0) -> dict[str, Json]:
        """Flatten one schema; `inside` are the references it was reached through."""
        flat = self._untyped(schema, inside, depth)
        return {**flat, "type": _type_name(flat)}

    def _untyped(self, schema: Json, inside: tuple[str, ...], depth: int) -> dict[str, Json]:
        """A schema put together from its parts, before a missing type is filled in."""
        self._schemas += 1
        if depth > MAX_DEPTH or self._schemas > MAX_SCHEMAS:
            raise InvalidToolsError(
                f"the parameter schema is nested deeper than {MAX_DEPTH} levels or larger than "
                f"{MAX_SCHEMAS:,} schemas; simplify it"
            )
        if not isinstance(schema, Mapping):  # `true` and `false` are schemas too
            return {}
        own = {k: v for k, v in schema.items() if k not in (*_UNIONS, *_DEFINITIONS, "allOf")}
        merged: dict[str, Json] = {}
        target = own.get("$ref")
        if isinstance(target, str) and (found := self._resolve(target)) is not None:
            del own["$ref"]
            # A reference to a schema it stands in would never end: there the shape stays open.
            again = {"type": "object"} if target in inside else found
            merged = self._untyped(again, (*inside, target), depth + 1)
        for branch in _list(schema.get("allOf")):
            merged = _merge(merged, self._untyped(branch, inside, depth + 1))
        for union in _UNIONS:
            merged = _merge(merged, self._branch(_list(schema.get(union)), inside, depth))
        return _merge(merged, self._children(own, inside, depth))

    def _branch(
        self, branches: Sequence[Json], inside: tuple[str, ...], depth: int
    ) -> dict[str, Json]:
        """The first branch that is not null; the null branch if there is no other."""
        null: dict[str, Json] = {}
        for branch in branches:
            flat = self._untyped(branch, inside, depth + 1)
            if _type_name(flat) != "null":
                return flat
            null = null or flat
        return null

    def _children(
        self, own: dict[str, Json], inside: tuple[str, ...], depth: int
    ) -> dict[str, Json]:
        """The schema's own keys, with the schemas among their values flattened."""
        for key in ("properties", "patternProperties"):
            table = own.get(key)
            if table is not None and not isinstance(table, Mapping):
                raise InvalidToolsError(f"'{key}' must be an object of schemas; correct it")
            if table is not None:
                own[key] = {n: self.flatten(s, inside, depth + 1) for n, s in table.items()}
        required = own.get("required")
        if required is not None and not isinstance(required, list):
            raise InvalidToolsError("'required' must be an array of names; correct it")
        items = own.get("items")
        if isinstance(
            items, list
        ):  # one schema for each place; the template knows only one for all
            items = items[0] if items else True
        if "items" in own:
            own["items"] = self.flatten(items, inside, depth + 1)
        if isinstance(own.get("additionalProperties"), Mapping):
            own["additionalProperties"] = self.flatten(
                own["additionalProperties"], inside, depth + 1
            )
        return own

    def _resolve(self, reference: str) -> Json | None:
        """The schema at a local reference such as `#/$defs/place`, or None."""
        if not reference.startswith("#"):
            return None
        node: Json = self._root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = node[key]
        return node


def _merge(base: dict[str, Json], over: Mapping[str, Json]) -> dict[str, Json]:
    """`over` on top of `base`; properties and required names of both are kept."""
    merged = {**base, **over}
    if isinstance(base.get("properties"), Mapping) and isinstance(over.get("properties"), Mapping):
        merged["properties"] = {**base["properties"], **over["properties"]}
    if isinstance(base.get("required"), list) and isinstance(over.get("required"), list):
        merged["required"] = list(dict.fromkeys([*base["required"], *over["required"]]))
    return merged


def _type_name(schema: Mapping[str, Json]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        names = [name for name in kind if isinstance(name, str)]
        kind = next((name for name in names if name != "null"), "null" if names else None)
    if isinstance(kind, str):
        return kind
    if isinstance(schema.get("properties"), Mapping):
        return "object"
    return "array" if "items" in schema else "string"


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()
