"""`mference generate`: one answer to a prompt or to a file of messages."""

from pathlib import Path
from typing import Annotated

import typer

from mference.chat.messages import read_messages
from mference.chat.tools import read_tools
from mference.cli import options as flags
from mference.cli.json_output import answer_json
from mference.cli.options import GenerationOptions, with_generation_options
from mference.cli.output import show, show_reply
from mference.engine import auto_chunk
from mference.errors import ConfigError
from mference.session.generation import answer_limit


@with_generation_options
def generate(
    options: GenerationOptions,
    *,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Continue this text; no chat framing.")
    ] = None,
    messages_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer a JSON array of {role, content} messages."),
    ] = None,
    tools: flags.ToolsFile = None,
    thinking: flags.Thinking = False,
    json: flags.Json = False,
) -> None:
    """Write one answer to stdout.

    Examples:

      mference generate --model demo.gturbo --prompt "A lighthouse is"

      mference generate --model demo.gturbo --messages-file chat.json --json
    """
    if (prompt is None) == (messages_file is None):
        raise ConfigError("give one of --prompt TEXT and --messages-file FILE")
    if messages_file is None and (tools or thinking):
        raise ConfigError("--tools and --thinking go with --messages-file, not with --prompt")
    flags.require_unicode("--prompt", prompt or "")
    messages = read_messages(messages_file) if messages_file else ()
    offered = read_tools(tools) if tools else ()

    install, form = options.open()
    if prompt is not None:
        ids = form.raw_ids(prompt)
    else:
        ids = form.prompt_ids(messages, offered, enable_thinking=thinking)
    answer_limit(len(ids), options.max_new, options.max_context)
    with options.assemble(install, form, auto_chunk(len(ids))) as model, options.traced(model):
        answer = model.stream_ids(ids, chat=prompt is None, tools=offered, **options.settings)
        if json:
            print(answer_json(answer))
            return
        if prompt is not None:
            show(answer)
        else:
            show_reply(answer, thinking=thinking)
        options.show_figures(answer)
