import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mference.chat.dialects.gemma4_schema import declarable, flattened
from mference.chat.tools import InvalidToolsError, Tool

TYPES = st.sampled_from(["string", "integer", "object", "array", "null", "boolean"])
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | st.lists(TYPES, max_size=3),
        "description": st.text(max_size=3),
        "enum": st.lists(st.text(max_size=2), max_size=2),
        "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b", "#", "#/none", "http://x"]),
    },
)
SCHEMAS = st.recursive(
    LEAVES | st.booleans(),
    lambda inner: st.tuples(
        LEAVES,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from(["x", "anyOf", "$ref"]), inner),
                "items": inner | st.lists(inner, max_size=2),
                "anyOf": st.lists(inner, max_size=3),
                "oneOf": st.lists(inner, max_size=3),
                "allOf": st.lists(inner, max_size=3),
                "additionalProperties": inner,
                "$defs": st.fixed_dictionaries({"a": inner, "b": inner}),
            },
        ),
    ).map(lambda pair: pair[0] | pair[1]),
    max_leaves=10,
)


def check_types(schema):
    assert isinstance(schema["type"], str)
    assert not {"anyOf", "oneOf", "allOf", "$defs"} & schema.keys()
    for child in schema.get("properties", {}).values():
        check_types(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            check_types(schema[key])


@given(SCHEMAS.filter(lambda s: isinstance(s, dict)))
@settings(deadline=None)
def test_every_schema_gets_one_type_name_and_stays_as_it_is_then(schema):
    try:
        flat = flattened(schema)
    except InvalidToolsError:
        return
    check_types(flat)
    assert flattened(flat) == flat


def test_local_references_are_put_in_place():
    schema = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/place", "description": "where"}},
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    assert flattened(schema) == {
        "type": "object",
        "properties": {
            "at": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "description": "where",
            }
        },
    }


def test_a_schema_that_contains_itself_ends_in_an_open_object():
    schema = {
        "type": "object",
        "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}},
    }
    child = flattened(schema)["properties"]["child"]
    assert child["properties"] == {"child": {"type": "object"}, "name": {"type": "string"}}


def test_a_reference_bomb_is_refused():
    definitions = {
        f"d{i}": {"properties": {key: {"$ref": f"#/$defs/d{i + 1}"} for key in "abcd"}}
        for i in range(30)
    }
    with pytest.raises(InvalidToolsError, match=r"tool 'f'.*simplify"):
        declarable(
            [Tool("f", "", {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions})]
        )


def test_unions_of_requirements_do_not_change_the_type():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert flattened(schema)["type"] == "object"


def test_parameters_are_an_object_even_when_the_schema_does_not_say_so():
    (tool,) = declarable([Tool("f", "", {"title": "x"})])
    assert tool.parameters == {"title": "x", "type": "object"}
    assert declarable([Tool("f")])[0].parameters == {}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": ["city"]}, "'properties'"),
        ({"properties": {"a": {"type": "object", "properties": 5}}}, "'properties'"),
        ({"properties": {"a": {"items": {"patternProperties": "x"}}}}, "'patternProperties'"),
        ({"properties": {"a": {"type": "object", "required": 7}}}, "'required'"),
        ({"anyOf": [{"type": "object", "required": "city"}]}, "'required'"),
    ],
)
def test_a_key_of_the_wrong_type_is_named_with_its_tool(schema, says):
    with pytest.raises(InvalidToolsError, match=rf"tool 'f': {says}"):
        declarable([Tool("f", "", schema)])
