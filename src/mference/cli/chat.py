"""`mference chat`: a conversation in the terminal."""

import sys
from typing import Annotated

import typer

from mference.chat.messages import Message
from mference.chat.tools import read_tools
from mference.cli import options as flags
from mference.cli.conversation import Conversation
from mference.cli.line_input import LineInput
from mference.cli.options import GenerationOptions, with_generation_options
from mference.cli.output import message_line, note
from mference.errors import MferenceError

HELP = "/clear starts over, /history shows the conversation, /quit or Ctrl-D ends it."
CHUNK = 128


@with_generation_options
def chat(
    options: GenerationOptions,
    *,
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Guidance for the model; may be repeated."),
    ] = None,
    tools: flags.ToolsFile = None,
    thinking: flags.Thinking = False,
) -> None:
    """Talk to a model. Lines come from the terminal or from a pipe.

    Where the model calls one of the --tools, the next line is what the tool answers.

    Examples:

      mference chat --model demo.gturbo --system "You are a pocket dictionary."

      mference chat --model demo.gturbo --tools tools.json
    """
    guidance = "\n".join(system or ())
    flags.require_unicode("--system", guidance)
    offered = read_tools(tools) if tools else ()
    install, form = options.open()
    if offered or thinking:
        # An install that cannot take them says so now, and not to the first question.
        form.render([Message("user", "")], offered, enable_thinking=thinking)
    with options.assemble(install, form, CHUNK) as model, options.traced(model):
        converse(
            Conversation(
                model,
                options.settings,
                guidance=guidance,
                tools=offered,
                thinking=thinking,
                figures=options.show_figures,
            )
        )


def converse(conversation: Conversation) -> None:
    """Answer line after line until the input ends.

    Ctrl-C in a terminal ends the answer that is being written; at the prompt it raises
    KeyboardInterrupt, and so it does where input comes from a pipe.
    """
    terminal = sys.stdin.isatty()
    if terminal:
        note(HELP)
    source = LineInput()
    while True:
        try:
            line = source.read(conversation.prompt)
            if line is None or line.strip() in ("/quit", "/exit"):
                return
            _take(conversation, line)
        except MferenceError as error:
            if not terminal:
                raise
            note(f"mference: {error}")


def _take(conversation: Conversation, line: str) -> None:
    match line.strip():
        case "":
            pass
        case "/clear":
            conversation.clear()
            note("The conversation is empty.")
        case "/history":
            for message in conversation.messages:
                note(message_line(message))
        case command if command.startswith("/"):
            note(f"{command.split()[0][:40]} is no command. {HELP}")
        case _:
            try:
                conversation.take(line)
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise
                note("\n[interrupted; this question is not part of the conversation]")
