import json
import shutil

import pytest

from mference.chat.dialects.base import (
    AmbiguousBoundaryError,
    NotInDialectError,
    UnsupportedDialectError,
)
from mference.chat.dialects.gemma4 import GEMMA4
from mference.chat.format import ChatFormat
from mference.chat.parts import calls_of
from mference.chat.template import ChatTemplate, MissingTemplateError
from mference.chat.tokenizer import Tokenizer
from mference.chat.tools import InvalidToolsError
from tests.chat.demo import CHECKPOINT, chat_format, prompts

CHAT = chat_format()
HELLO = [{"role": "user", "content": "Hello!"}]
TOOLS = next(case["tools"] for case in prompts()["cases"] if case["tools"])


def by_name(case):
    return case.get("name") or case["prompt"]


@pytest.mark.parametrize("case", prompts()["cases"], ids=by_name)
def test_reference_prompts_are_reproduced_to_the_token(case):
    assert CHAT.render(case["messages"], case["tools"]) == case["rendered"]
    assert CHAT.prompt_ids(case["messages"], case["tools"]) == case["prompt_ids"]


@pytest.mark.parametrize("case", prompts()["cases"], ids=by_name)
def test_reference_answers_are_detokenized_to_the_character(case):
    assert CHAT.tokenizer.encode(case["decode_text"]) == case["decode_ids"]
    reader = CHAT.text_reader()
    text = "".join(part.text for t in case["decode_ids"] for part in reader.push(t))
    assert text == CHAT.tokenizer.decode(case["decode_ids"])


@pytest.mark.parametrize(
    "case", [c for c in prompts()["report"]["tool calls"] if "call" in c], ids=by_name
)
def test_reference_tool_conversations_are_read_and_rendered_on(case):
    reader = CHAT.assistant_reader(TOOLS)
    first = CHAT.tokenizer.encode(case["first"])
    assert first[-1] == CHAT.tokenizer.id_of("<|tool_response>")
    (call,) = calls_of([part for t in first for part in reader.push(t)])
    assert {"name": call.name, "arguments": call.arguments} == case["call"]
    user = {"role": "user", "content": case["prompt"]}
    function = {"name": call.name, "arguments": call.arguments_json}
    history = [
        user,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": case["result"]},
    ]
    rendered = CHAT.render(history, TOOLS)
    opening = CHAT.render([user], TOOLS).removesuffix("<|channel>thought\n<channel|>")
    assert rendered.startswith(opening + case["first"] + f"response:{call.name}{{")
    assert rendered.endswith("}<tool_response|>")
    bridge = CHAT.tool_result_ids(CHAT.tokenizer.encode(rendered), first[:-1])
    assert (
        CHAT.tokenizer.decode(bridge, keep_special=True)
        == rendered[rendered.rindex("<|tool_response>") :]
    )


def test_text_only_framing_agrees_with_the_demo_template():
    framed = ChatFormat(CHAT.tokenizer, GEMMA4)
    for case in prompts()["cases"]:
        if not case["tools"]:
            assert framed.render(case["messages"]) == case["rendered"]


def test_without_a_template_tools_and_thinking_are_refused():
    framed = ChatFormat(CHAT.tokenizer, GEMMA4)
    for options in ({"tools": TOOLS}, {"enable_thinking": True}):
        with pytest.raises(MissingTemplateError, match="install the model again"):
            framed.render([{"role": "user", "content": "x"}], **options)


def test_thinking_is_refused_where_the_template_never_asks_for_it():
    mute = ChatTemplate("{% set enable_thinking = 1 %}{# enable_thinking #}{{ bos_token }}", "mute")
    form = ChatFormat(CHAT.tokenizer, GEMMA4, mute)
    assert form.render(HELLO) == "<bos>"
    with pytest.raises(NotInDialectError, match="mute has no thinking to turn on"):
        form.render(HELLO, enable_thinking=True)


def test_no_gemma_prompt_that_is_rendered_opens_a_thought():
    for thinking in (False, True):
        assert not CHAT.starts_in_thought(CHAT.prompt_ids(HELLO, enable_thinking=thinking))
    opened = CHAT.tokenizer.encode("<|turn>model\n<|channel>thought\n")
    assert CHAT.starts_in_thought(opened)
    assert not CHAT.starts_in_thought([*opened, *CHAT.prompt_ids(HELLO)])


def test_a_name_with_a_hyphen_cannot_be_offered_to_gemma():
    with pytest.raises(InvalidToolsError, match=r"'a-b': .* rename"):
        CHAT.render(HELLO, [{"name": "a-b"}])


def test_raw_prompts_get_the_start_token_and_rendered_ones_bring_it():
    assert CHAT.raw_ids("x") == [2, *CHAT.tokenizer.encode("x")]
    assert CHAT.raw_ids("") == [2]
    assert CHAT.prompt_ids([{"role": "user", "content": "x"}]).count(2) == 1


def test_a_continuation_begins_with_the_token_that_ended_the_answer():
    ids = CHAT.continuation_ids(" next \n")
    assert ids[0] == 106
    assert CHAT.stops[ids[0]] == "end_of_turn"


def test_the_stop_tokens_are_gemmas():
    assert CHAT.stops == {1: "eos", 106: "end_of_turn", 50: "tool_calls"}


def test_hostile_tool_schemas_render():
    properties = {
        "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "b": {"$ref": "#/$defs/b"},
        "c": True,
        "d": {"type": ["array", "null"], "items": [{"enum": [1, None]}]},
        "e": {"type": "object", "additionalProperties": {"oneOf": [{"type": "number"}]}},
    }
    schema = {"type": "object", "properties": properties, "$defs": {"b": {"enum": ["x"]}}}
    text = CHAT.render([{"role": "user", "content": "x"}], [{"name": "f", "parameters": schema}])
    assert "declaration:f{" in text


def test_a_call_that_is_not_in_the_render_is_no_boundary():
    with pytest.raises(AmbiguousBoundaryError, match="occur 0 times"):
        CHAT.tool_result_ids([1, 2, 3], [9])
    with pytest.raises(AmbiguousBoundaryError):
        CHAT.tool_result_ids([1, 2, 3], [2])


def test_a_tokenizer_of_another_dialect_is_refused(tmp_path):
    file = tmp_path / "tokenizer.json"
    source = json.loads((CHECKPOINT / "tokenizer.json").read_text("utf-8"))
    for sign, says in (
        ("<|message_user|>", "inkling"),
        ("<|im_end|>", r"lacks .*the chatml dialect"),
    ):
        file.write_text(json.dumps(source).replace("<|turn>", sign))
        with pytest.raises(UnsupportedDialectError, match=says):
            ChatFormat.load(tmp_path)
    with pytest.raises(UnsupportedDialectError, match=r"lacks <\|turn>"):
        ChatFormat(Tokenizer.load(tmp_path), GEMMA4)
    shutil.copy(CHECKPOINT / "tokenizer.json", file)
    assert ChatFormat.load(tmp_path).template is None
