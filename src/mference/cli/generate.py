"""`mference generate`: one answer to a prompt or to a file of messages."""

from pathlib import Path
from typing import Annotated

import typer

from mference.chat.messages import read_messages
from mference.cli import options
from mference.cli.output import note, print_footer, show, show_reply
from mference.engine import auto_chunk
from mference.errors import ConfigError
from mference.model import assemble, chat_format_of
from mference.session.generation import answer_limit
from mference.store import open_install


def generate(
    model: options.ModelDir,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Continue this text; no chat framing.")
    ] = None,
    messages_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer a JSON array of {role, content} messages."),
    ] = None,
    max_new: options.MaxNew = 1024,
    max_context: options.MaxContext = 4096,
    temperature: options.Temperature = 0.2,
    top_k: options.TopK = 64,
    top_p: options.TopP = 0.95,
    repetition_penalty: options.Penalty = 1.0,
    seed: options.Seed = None,
    stop: options.Stop = None,
    expert_cache_slots: options.SlotsOption = "auto",
    prefill_chunk: options.Chunk = "auto",
    threads: options.Threads = 0,
    verify: options.Verify = "full-sha256",
    allow_unpinned: options.AllowUnpinned = False,
    quiet: options.Quiet = False,
) -> None:
    """Write one answer to stdout.

    Examples:

      mference generate --model demo.gturbo --prompt "A lighthouse is"

      mference generate --model demo.gturbo --messages-file chat.json --temperature 0
    """
    if (prompt is None) == (messages_file is None):
        raise ConfigError("give one of --prompt TEXT and --messages-file FILE")
    settings = options.settings_of(
        max_new=max_new,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop,
    )
    slots = options.parse_slots(expert_cache_slots)
    chunk = options.parse_chunk(prefill_chunk)
    messages = read_messages(messages_file) if messages_file else ()

    install = open_install(model, policy=verify, allow_unpinned=allow_unpinned, warn=note)
    form = chat_format_of(install)
    ids = form.raw_ids(prompt) if prompt is not None else form.prompt_ids(messages)
    answer_limit(len(ids), max_new, max_context)
    loaded = assemble(
        install,
        form,
        slots=slots,
        context=max_context,
        prefill_chunk=chunk or auto_chunk(len(ids)),
        threads=threads,
    )
    with loaded:
        answer = loaded.stream(prompt if prompt is not None else messages, **settings)
        if prompt is not None:
            show(answer)
        else:
            show_reply(answer)
        if not quiet:
            print_footer(answer)
