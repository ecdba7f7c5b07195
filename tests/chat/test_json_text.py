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


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", "1e999", "[-1e999]", "1" * 5000, "[" * 65 + "]" * 65,
     r'"\ud800"', r'{"\uDFFF": 1}'],
)  # fmt: skip
def test_what_is_not_bounded_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        json_text.decode(text)


def test_brackets_in_strings_do_not_count_as_nesting():
    assert json_text.depth('["[[[\\"[["]') == 1


def test_a_number_of_thousands_of_digits_is_told_by_its_length():
    with pytest.raises(ValueError, match="a number of 5,000 digits"):
        json_text.decode("1" * 5000)


def test_a_whole_surrogate_pair_is_one_character():
    assert json_text.decode(r'"\ud83d\ude00"') == "😀"
