import pytest

from mference.chat.tools import InvalidToolsError, Tool, offered, read_tools


def test_tools_are_read_wrapped_or_bare():
    inner = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    tool = Tool("f", "d", {"type": "object"})
    assert offered([{"type": "function", "function": inner}]) == (tool,)
    assert offered([inner]) == (tool,) == offered([tool])
    assert offered(None) == offered([]) == ()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("f", "expected a list"),
        ([1], r"tools\[0\]: expected an object"),
        ([{"type": "retrieval"}], "'retrieval' is not supported"),
        ([{"function": {}}], "needs function.name"),
        ([{"name": "a b"}], "letters, digits, _ and -"),
        ([{"name": "x" * 65}], "letters, digits, _ and -"),
        ([{"name": "f"}, {"name": "f"}], r"tools\[1\]: a second tool named 'f'"),
        ([{"name": "f", "description": 1}], "description: expected text"),
        ([{"name": "f", "parameters": []}], "expected a JSON schema object"),
    ],
)
def test_a_tool_that_cannot_be_offered_is_refused(given, says):
    with pytest.raises(InvalidToolsError, match=says):
        offered(given)


def test_tools_are_read_from_a_file(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text('[{"type": "function", "function": {"name": "f"}}, {"name": "g"}]')
    assert [tool.name for tool in read_tools(path)] == ["f", "g"]
    path.write_text('[{"name": "f"}, {"name": "f"}]')
    with pytest.raises(InvalidToolsError, match=r"tools.json\[1\]: a second tool"):
        read_tools(path)
