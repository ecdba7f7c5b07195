from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mference.chat.history import trim_history
from mference.chat.messages import Message, conversation


def test_tool_results_go_with_the_call_they_answer():
    call = {"role": "assistant", "tool_calls": [{"name": "f"}]}
    result = {"role": "tool", "content": "1"}
    history = conversation(
        [
            {"role": "user", "content": "u1"}, call, result, result,
            {"role": "assistant", "content": "a"}, {"role": "user", "content": "u2"},
        ]
    )  # fmt: skip
    trimmed = trim_history(history, 4, len)
    assert [m.role for m in trimmed.kept] == ["assistant", "user"]
    assert trimmed.dropped == 4


def test_the_newest_results_keep_their_call_and_the_question():
    call = {"role": "assistant", "tool_calls": [{"name": "f"}]}
    result = {"role": "tool", "content": "1"}
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
    older = [user, call, result]
    trimmed = trim_history(conversation([system, *older, *older, call, result, result]), 1, len)
    assert [m.role for m in trimmed.kept] == ["system", "user", "assistant", "tool", "tool"]
    assert trimmed.dropped == 5
    assert not trimmed.fits
    alone = trim_history(conversation([call, result, call, result]), 1, len)
    assert [m.role for m in alone.kept] == ["assistant", "tool"]


ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


@given(st.lists(ROLES, max_size=12), st.integers(0, 12))
def test_whatever_the_roles_the_end_stays_and_no_result_loses_its_call(roles, limit):
    history = [Message(role, str(i)) for i, role in enumerate(roles)]
    trimmed = trim_history(history, limit, len)
    assert trimmed.dropped + len(trimmed.kept) == len(history)
    assert trimmed.fits == (len(trimmed.kept) <= limit)
    guided = bool(roles) and roles[0] == "system"
    if guided:
        assert trimmed.kept[0] == history[0]
    tail = list(trimmed.kept[guided:])
    question = next((m for m in reversed(history) if m.role == "user"), None)
    if roles[-1:] == ["tool"] and question is not None:
        assert question in tail
        if tail[0] == question:
            del tail[0]
    assert tail == history[len(history) - len(tail) :]
    if history:
        assert trimmed.kept[-1] == history[-1]
    for before, message in pairwise(history[guided:]):
        if message.role == "tool" and message in trimmed.kept:
            assert before in trimmed.kept


def test_a_conversation_of_nothing_is_left_alone():
    assert trim_history((), 0, len).kept == ()
