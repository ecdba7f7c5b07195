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


def test_the_newest_results_keep_their_call():
    call = {"role": "assistant", "tool_calls": [{"name": "f"}]}
    result = {"role": "tool", "content": "1"}
    system, user = {"role": "system", "content": "s"}, {"role": "user", "content": "u"}
    trimmed = trim_history(conversation([system, user, call, result, result]), 1, len)
    assert [m.role for m in trimmed.kept] == ["system", "assistant", "tool", "tool"]
    assert not trimmed.fits


ROLES = st.sampled_from(["user", "assistant", "tool", "system"])


@given(st.lists(ROLES, max_size=12), st.integers(0, 12))
def test_whatever_the_roles_the_end_stays_and_no_result_loses_its_call(roles, limit):
    history = [Message(role, str(i)) for i, role in enumerate(roles)]
    trimmed = trim_history(history, limit, len)
    assert trimmed.dropped + len(trimmed.kept) == len(history)
    assert trimmed.fits == (len(trimmed.kept) <= limit)
    guided = bool(roles) and roles[0] == "system"
    tail = trimmed.kept[guided:]
    assert list(tail) == history[len(history) - len(tail) :]
    if history:
        assert trimmed.kept[-1] == history[-1]
    if guided:
        assert trimmed.kept[0] == history[0]
    if trimmed.dropped and len(tail) > 1:
        assert tail[0].role != "tool" or all(m.role == "tool" for m in history[guided:])


def test_a_conversation_of_nothing_is_left_alone():
    assert trim_history((), 0, len).kept == ()
