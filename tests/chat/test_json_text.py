import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mference.chat import json_text
from mference.jsontext import compact

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


def nesting(value):
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


@given(VALUES)
@settings(deadline=None)
def test_what_is_encoded_decodes_to_the_same(value):
    text = compact(value)
    assert json_text.decode(text) == value
    assert json_text.depth(text) == json_text.depth(json.dumps(value)) == nesting(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "1" * 5000, "[" * 65 + "]" * 65])
def test_what_is_not_bounded_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        json_text.decode(text)


def test_brackets_in_strings_do_not_count_as_nesting():
    assert json_text.depth('["[[[\\"[["]') == 1
