import time

import pytest

from mference.chat.messages import conversation
from mference.chat.template import ChatTemplate, load_template
from mference.chat.tools import Tool
from mference.errors import StoreError, TemplateError

HELLO = conversation([{"role": "user", "content": "hello"}])


def rendered(source, messages=HELLO, tools=(), **options):
    return ChatTemplate(source).render(
        messages, tools, special_tokens={"bos_token": "<bos>"}, **options
    )


def test_a_template_sees_messages_tools_and_special_tokens():
    source = (
        "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m['content'] }}{% endfor %}"
        "{{ tools[0].function.name if tools else 'none' }}{{ add_generation_prompt }}"
        "{{ enable_thinking }}"
    )
    assert rendered(source) == "<bos>user:hellononeTrueFalse"
    assert rendered(source, tools=[Tool("f")]).endswith("fTrueFalse")


def test_blocks_are_trimmed_as_checkpoints_expect():
    assert rendered("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_what_published_templates_use_works():
    """The idioms of the Gemma and Qwen templates: look-back, captures, splits, defaults."""
    source = """
{%- macro bare(text) -%}
    {%- set ns = namespace(kept='') -%}
    {%- for part in text.split('</think>') -%}
        {%- set ns.kept = ns.kept + part.split('<think>')[0] -%}
    {%- endfor -%}
    {{- ns.kept | trim -}}
{%- endmacro -%}
{%- for m in messages -%}
    {%- set before = namespace(role=none) -%}
    {%- for j in range(loop.index0 - 1, -1, -1) -%}
        {%- if before.role is none and messages[j]['role'] != 'tool' -%}
            {%- set before.role = messages[j].role -%}
        {%- endif -%}
    {%- endfor -%}
    {%- set body -%}{% generation %}{{ bare(m['content']) }}{% endgeneration %}{%- endset -%}
    {{- '[' ~ m.role ~ ' after ' + (before.role or 'nothing') + ': ' -}}
    {{- body | default('x') }}{{ m.get('tool_calls') or (m.name | default('')) }}]
{%- endfor -%}
{%- for m in messages[::-1] if m.role in ['user'] -%}{{ m.content is iterable }}{%- endfor -%}
"""
    messages = conversation(
        [
            {"role": "user", "content": " hi "},
            {"role": "tool", "content": "1"},
            {"role": "assistant", "content": "<think>hm</think> yes"},
        ]
    )
    assert rendered(source, messages) == (
        "[user after nothing: hi][tool after user: 1][assistant after user: yes]True"
    )


def test_tojson_writes_plain_json():
    assert rendered("{{ {'b': '<ü>', 'a': 1} | tojson }}") == '{"b": "<ü>", "a": 1}'
    assert rendered("{{ {'b': [1], 'a': 1} | tojson(indent=1, sort_keys=true) }}").startswith(
        '{\n "a"'
    )


def test_filters_that_are_checked_work():
    assert rendered("{{ ['a', 1] | join(', ') }}{{ [] | join }}") == "a, 1"
    assert rendered("{{ messages | join(attribute='content') }}") == "hello"
    assert rendered("{{ 'a-b' | replace('-', '+') }}{{ 'x\ny' | indent(2) }}") == "a+bx\n  y"
    assert rendered("{{ messages | map(attribute='role') | list | first | upper }}") == "USER"


def test_loop_state_works_on_counted_loops():
    source = (
        "{% for x in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}"
        "{% if x == 2 %}{% break %}{% endif %}{% endfor %}"
    )
    assert rendered(source) == "1/3,2/3,"


def test_a_refusal_of_the_template_says_its_words():
    with pytest.raises(TemplateError, match="roles must alternate"):
        rendered("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    ["{{ messages[7].content }}", "{{ 1 / 0 }}", "{% include 'x' %}", "{{ messages.append(1) }}"],
)
def test_a_failing_template_is_a_template_error(source):
    with pytest.raises(TemplateError, match="failed on these messages"):
        rendered(source)


def test_a_malformed_template_says_its_line():
    with pytest.raises(TemplateError, match="line 2"):
        ChatTemplate("ok\n{% for %}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ strftime_now.__globals__ }}",
    ],
)
def test_the_interpreter_is_out_of_reach(source):
    with pytest.raises(TemplateError):
        rendered(source + "{{ raise_exception('empty') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ range(10 ** 9) | list }}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
        "{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
        "{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
        "{% endfor %}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ 'a'.ljust(10 ** 10) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ ('a' * 99999) | replace('a', 'a' * 99999) }}",
        "{{ ('a' * 99999).replace('a', 'a' * 99999) }}",
        "{{ range(9999) | join('a' * 99999) }}",
        "{{ range(9999) | join(d='a' * 99999) }}",
        "{{ (messages * 99999) | join('a' * 99999, attribute='role') }}",
        "{% set big = 'a' * 9999999 %}{{ ([{'x': big}] * 9999) | join(attribute='x') }}",
        "{% set big = 'a' * 9999999 %}{{ [big] * 9999 }}",
        "{% set big = 'a' * 9999999 %}{% set x = '' ~ [big] * 9999 %}",
        "{% set big = 'a' * 9999999 %}{% set x = ([big] * 9999) | string %}",
        "{% set big = 'a' * 9999999 %}{% set x = ''.join([big] * 9999) %}",
        "{% set n = namespace(x=['ab']) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
        "{% endfor %}{{ n.x | tojson }}",
        "{{ ('a' * 99999).join(range(9999) | map('string') | list) }}",
        "{{ ('\n' * 99999) | indent(99999) }}",
        "{{ ('\n' * 99999) | indent(first=true, width=99999) }}",
        "{{ [[[]]] | tojson(indent=99999) }}",
        "{{ strftime_now('%999999999d') }}",
        "{% set big = 'a' * 9999999 %}{% set x %}{% for i in range(9999) %}{{ big }}{% endfor %}"
        "{% endset %}",
        "{% set x %}{% for i in range(99999) %}" + "y" * 99999 + "{% endfor %}{% endset %}",
        "{% for i in range(99999) %}{{ messages[0].content * 99999 }}{% endfor %}",
    ],
)  # fmt: skip
def test_a_template_can_neither_run_for_ever_nor_fill_the_memory(source, monkeypatch):
    monkeypatch.setattr("mference.chat.sandbox.MAX_SECONDS", 2.0)
    started = time.monotonic()
    with pytest.raises(TemplateError):
        rendered(source)
    assert time.monotonic() - started < 20


def test_a_slow_template_is_stopped_by_the_clock(monkeypatch):
    monkeypatch.setattr("mference.chat.sandbox.MAX_SECONDS", 0.05)
    source = (
        "{% set big = 'a' * 999999 %}"
        "{% for i in range(99999) %}{% if 'b' in big %}{% endif %}{% endfor %}"
    )
    with pytest.raises(TemplateError, match=r"0\.05 seconds"):
        rendered(source)


def test_one_render_does_not_spend_the_budget_of_the_next():
    template = ChatTemplate("{% for a in range(90000) %}{% endfor %}")
    for _ in range(120):
        template.render(HELLO, special_tokens={})


def test_the_jinja_file_wins_over_the_json_files(tmp_path):
    assert load_template(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "config"}')
    assert load_template(tmp_path).source == "config"
    named = '{"chat_template": [{"name": "tool_use", "template": "t"},{"name": "default", '
    (tmp_path / "chat_template.json").write_text(named + '"template": "json"}]}')
    assert load_template(tmp_path).source == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert load_template(tmp_path).source == "jinja"


@pytest.mark.parametrize("data", [b"\xff", b"{", b"\xff\xfe{}", b"[" * 100_000])
def test_a_damaged_template_file_is_a_store_error(tmp_path, data):
    (tmp_path / "chat_template.json").write_bytes(data)
    with pytest.raises(StoreError, match="chat template"):
        load_template(tmp_path)
