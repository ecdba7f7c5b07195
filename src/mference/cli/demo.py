"""`mference demo`: the embedded model, installed and running after one command."""

from typing import Annotated, Any

import typer

from mference import demo as embedded
from mference.cli.chat import CHUNK, converse
from mference.cli.conversation import Conversation
from mference.cli.options import require_unicode
from mference.cli.output import (
    byte_progress,
    note,
    print_footer,
    show_reply,
    size,
    tool_call_line,
)
from mference.errors import ConfigError
from mference.model import Model, assemble, chat_format_of

TOUR = ("What is a lighthouse?", "What is the capital of Mongolia?", "What is 17 + 25?")

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}


def demo(
    once: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Answer one question and exit.")
    ] = None,
    tour: Annotated[
        bool, typer.Option("--tour", help="Show three answers, a tool call, and the figures.")
    ] = False,
) -> None:
    """Talk to the embedded demo model, a pocket dictionary. Installs it first, if need be.

    Example:

      mference demo --once "What is a lighthouse?"
    """
    if once is not None and tour:
        raise ConfigError("give one of --once TEXT and --tour")
    require_unicode("--once", once or "")
    with byte_progress() as update:
        install = embedded.installed(lambda p: update(p.phase, p.done, p.total))
    loaded = assemble(
        install,
        chat_format_of(install),
        slots="auto",
        context=4096,
        prefill_chunk=CHUNK,
        threads=0,
    )
    with loaded as model:
        if once is not None:
            answer = model.stream([{"role": "user", "content": once}], temperature=0)
            show_reply(answer)
            print_footer(answer)
        elif tour:
            _tour(model)
        else:
            note("A pocket dictionary: ask what a word means, for a capital, or a small sum.")
            converse(Conversation(model, {"temperature": 0}))


def _tour(model: Model) -> None:
    print(f"Installed in {model.install.path}\n")
    completions = []
    for question in TOUR:
        reply = model.chat([{"role": "user", "content": question}], temperature=0)
        completions.append(reply.completion)
        print(f"> {question}\n{reply.content}\n")
    question = "What is the weather in Lisbon?"
    reply = model.chat([{"role": "user", "content": question}], tools=[WEATHER], temperature=0)
    completions.append(reply.completion)
    print(f"> {question}   (offered the tool get_weather)")
    for call in reply.tool_calls:
        print(f"calls {tool_call_line(call)}\n")

    report = model.report()
    memory = report.memory
    experts = model.install.manifest.arch.integer("numExperts")
    prompts = sum(c.prompt_tokens for c in completions)
    # The first token of an answer comes out of the prefill.
    decoded = sum(c.completion_tokens - 1 for c in completions)
    prefill = prompts / sum(c.timings.prefill for c in completions)
    decode = decoded / sum(c.timings.decode for c in completions)
    print(f"speed    prompts {prefill:,.0f} tokens/s, answers {decode:,.0f} tokens/s")
    print(
        f"experts  {report.slots} of {experts} kept for each layer: {report.hit_rate:.0%} found "
        f"there, {report.misses:,} read from disk ({size(report.bytes_read)})"
    )
    if memory.own is not None and memory.mapped is not None and memory.peak is not None:
        print(
            f"memory   {size(memory.own)} own, {size(memory.mapped)} mapped files, "
            f"{size(memory.peak)} at the highest (with Python and its libraries)"
        )
