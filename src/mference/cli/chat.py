"""`mference chat`: a conversation in the terminal."""

import sys
from typing import Annotated

import typer

from mference.chat.history import trim_history
from mference.chat.messages import Message
from mference.cli import options
from mference.cli.output import note, print_footer, show_reply
from mference.errors import GenerationError, MferenceError
from mference.model import Model, Settings, load

HELP = "/clear starts over, /history shows the conversation, /quit or Ctrl-D ends it."


def chat(
    model: options.ModelDir,
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Guidance for the model; may be repeated."),
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
    """Talk to a model. Lines come from the terminal or from a pipe.

    Example:

      mference chat --model demo.gturbo --system "You are a pocket dictionary."
    """
    settings = options.settings_of(
        max_new=max_new,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stop=stop,
    )
    loaded = load(
        model,
        slots=options.parse_slots(expert_cache_slots),
        context=max_context,
        prefill_chunk=options.parse_chunk(prefill_chunk) or 128,
        threads=threads,
        verify=verify,
        allow_unpinned=allow_unpinned,
        warn=note,
    )
    with loaded:
        converse(loaded, settings, guidance="\n".join(system or ()), quiet=quiet)


def converse(model: Model, settings: Settings, *, guidance: str = "", quiet: bool = False) -> None:
    """Answer line after line until the input ends.

    Ctrl-C in a terminal ends the answer that is being written; at the prompt it raises
    KeyboardInterrupt, and so it does where input comes from a pipe.
    """
    terminal = sys.stdin.isatty()
    if terminal:
        import readline  # noqa: F401 - gives input() its line editing and history

        note(HELP)
    start = [Message("system", guidance)] if guidance else []
    history = list(start)
    while (line := _read_line(terminal)) is not None:
        match line.strip():
            case "":
                continue
            case "/quit" | "/exit":
                return
            case "/clear":
                history = list(start)
                note("The conversation is empty.")
                continue
            case "/history":
                for message in history:
                    note(f"{message.role}: {message.content}")
                continue
            case command if command.startswith("/"):
                note(f"{command.split()[0][:40]} is no command. {HELP}")
                continue
        try:
            history = _answer(model, [*history, Message("user", line)], settings, quiet=quiet)
        except KeyboardInterrupt:
            if not terminal:
                raise
            note("\n[interrupted; this question is not part of the conversation]")
        except MferenceError as error:
            if not terminal:
                raise
            note(f"mference: {error}")


def _read_line(terminal: bool) -> str | None:
    if terminal:
        try:
            return input("> ")
        except EOFError:
            note("")
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _answer(
    model: Model, history: list[Message], settings: Settings, *, quiet: bool
) -> list[Message]:
    """Shows the answer to the last message; the conversation with it."""
    trimmed = trim_history(
        history, model.context - 1, lambda messages: len(model.format.prompt_ids(messages))
    )
    if trimmed.dropped:
        note(f"[the {trimmed.dropped} oldest messages no longer fit and were left out]")
    if not trimmed.fits:
        raise GenerationError(
            f"this message needs {trimmed.tokens} tokens, and the context has {model.context}; "
            "shorten it, or start again with a larger --max-context"
        )
    answer = model.stream(list(trimmed.kept), **settings)
    reply = show_reply(answer)
    if not quiet:
        print_footer(answer)
    return [*trimmed.kept, Message("assistant", reply.content)]
