from itertools import cycle, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mference.chat.dialects import DIALECTS, dialect
from mference.chat.dialects.base import MalformedCallError, UnsupportedDialectError
from mference.chat.dialects.chatml import CHATML
from mference.chat.dialects.gemma4 import GEMMA4, Gemma4Splitter
from mference.chat.messages import InvalidMessagesError, conversation
from mference.chat.parts import Content, Reasoning, content_of, reasoning_of


def test_a_dialect_not_spoken_is_refused_by_name_with_those_that_are():
    assert dialect("gemma") is GEMMA4
    assert dialect("chatml") is CHATML
    with pytest.raises(UnsupportedDialectError, match=r"'inkling'.*supported: gemma, chatml"):
        dialect("inkling")


def test_hidden_channels_are_reasoning_and_their_labels_are_nothing():
    splitter = Gemma4Splitter([])
    splitter.marker("channel_open")
    assert splitter.text("tho") == splitter.text("ught") == ()
    assert splitter.text("\nwhy") == (Reasoning("why"),)
    assert splitter.text(" not") == (Reasoning(" not"),)
    splitter.marker("channel_close")
    assert splitter.text("so") == (Content("so"),)


def test_a_channel_closed_within_its_label_shows_nothing():
    splitter = Gemma4Splitter([])
    splitter.marker("channel_open")
    splitter.text("thought")
    splitter.marker("channel_close")
    assert splitter.text("x") == (Content("x"),)
    assert splitter.finish() == ()


@given(
    st.text("th\n\u00e9", max_size=12),
    st.text("ab\n", max_size=12),
    st.lists(st.integers(1, 3), min_size=1, max_size=12),
)
def test_where_the_text_is_cut_does_not_matter(thought, content, cuts):
    def fed(splitter, text, sizes):
        parts = []
        while text:
            size = next(sizes)
            parts += splitter.text(text[:size])
            text = text[size:]
        return parts

    def split(sizes):
        splitter = Gemma4Splitter([])
        parts = list(splitter.marker("channel_open")) + fed(splitter, thought, sizes)
        parts += (*splitter.marker("channel_close"), *fed(splitter, content, sizes))
        return reasoning_of(parts), content_of(parts)

    whole = split(repeat(100))
    assert split(cycle(cuts)) == whole == (thought.partition("\n")[2], content)


@pytest.mark.parametrize(
    "role", ["tool_open", "channel_open", "channel_close", "tool_response_open"]
)
def test_no_marker_may_stand_inside_a_tool_call(role):
    splitter = Gemma4Splitter(["f"])
    splitter.marker("tool_open")
    with pytest.raises(MalformedCallError, match=role):
        splitter.marker(role)
    with pytest.raises(MalformedCallError):
        splitter.finish()


def test_an_answer_that_begins_in_a_channel_is_reasoning_until_it_closes():
    splitter = Gemma4Splitter([], in_thought=True)
    assert splitter.text("a\nb") == (Reasoning("a\nb"),)
    splitter.marker("channel_close")
    assert splitter.text("c") == (Content("c"),)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_text_only_prompt_refuses_what_needs_a_template(dialect):
    for messages in (
        [{"role": "user", "content": "u"}, {"role": "system", "content": "late"}],
        [{"role": "assistant", "content": "a", "tool_calls": [{"name": "f"}]}],
        [{"role": "tool", "content": "r"}],
    ):
        with pytest.raises(InvalidMessagesError):
            dialect.frame(conversation(messages))
