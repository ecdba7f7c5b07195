from mference.chat.history import trim_history
from mference.chat.messages import conversation


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


def test_a_conversation_of_nothing_is_left_alone():
    assert trim_history((), 0, len).kept == ()
