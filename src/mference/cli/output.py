"""What the commands print: streamed answers, tool calls, footers, progress bars."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from mference.chat.messages import Message
from mference.chat.parts import Content, ToolCall
from mference.errors import MferenceError
from mference.jsontext import compact
from mference.model import Answer
from mference.report import Report
from mference.report import size as size
from mference.session.results import Completion, Reply

_WIDE = 1000  # columns of a pipe, where nothing needs to be folded

stderr = Console(stderr=True, highlight=False, soft_wrap=True)


class Update(Protocol):
    """Moves a progress bar: what is done, bytes done, bytes in all, what is at hand."""

    def __call__(self, description: str, done: int, total: int, detail: str = "") -> None:
        """Show this, if there is a terminal."""


def note(text: str) -> None:
    """One line for the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


def print_table(table: Table) -> None:
    """Write a table to stdout, as wide as the terminal, or unfolded to a pipe."""
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show(answer: Answer) -> None:
    """Write an answer to stdout as it comes."""
    text = ""
    for text in answer:
        sys.stdout.write(text)
        sys.stdout.flush()
    if not text.endswith("\n"):
        sys.stdout.write("\n")
        sys.stdout.flush()


def show_reply(answer: Answer, *, thinking: bool = False) -> Reply:
    """Write a chat answer to stdout as it comes, then the tools it calls; the reply.

    With `thinking`, the model's thoughts go to stderr. An answer that was cut short inside a
    thought is a note there.
    """
    shown = _Shown()
    try:
        for part in answer.parts():
            if isinstance(part, Content):
                shown.content(part.text)
            elif isinstance(part, ToolCall):
                shown.call()
            elif thinking:
                shown.thought(part.text)
        reply = answer.reply
    except MferenceError:
        shown.end()
        raise
    shown.end()
    for call in reply.tool_calls:
        sys.stdout.write(tool_call_line(call) + "\n")
    sys.stdout.flush()
    if unanswered(reply) and (thinking or reply.reasoning):
        note(
            "[the answer ended inside a thought; raise --max-new, or --max-context if the context "
            "is full]"
        )
    return reply


def unanswered(reply: Reply) -> bool:
    """Whether the tokens ran out before the model answered or called anything."""
    said = reply.content.strip() or reply.tool_calls
    return not said and reply.completion.finish_reason == "max_tokens"


class _Shown:
    """A chat answer as it is written: content on stdout, thoughts on stderr.

    White space is held until content follows: before calls, and at the end, there is a line break.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._empty = True
        self._called = False
        self._thought = ""  # the last piece of the thought whose line is not ended

    def content(self, text: str) -> None:
        self._end_thought()
        kept = text.rstrip()
        if not kept:
            self._held.append(text)
            return
        written = "".join(self._held) + kept
        sys.stdout.write(written.lstrip() if self._empty and self._called else written)
        sys.stdout.flush()
        self._held = [text[len(kept) :]]
        self._empty = False

    def thought(self, text: str) -> None:
        self._thought = text
        print(text, end="", file=sys.stderr, flush=True)

    def call(self) -> None:
        self._end_thought()
        self._called = True

    def end(self) -> None:
        self._end_thought()
        if not self._empty:
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _end_thought(self) -> None:
        if self._thought and not self._thought.endswith("\n"):
            note("")
        self._thought = ""


def tool_call_line(call: ToolCall) -> str:
    """A tool call on one line, as code."""
    return f"{call.name}({call.arguments_json})"


def message_line(message: Message) -> str:
    """A message of a conversation for people: who, and what was said, called or answered."""
    who = f"{message.name} result" if message.role == "tool" else message.role
    content = "" if message.content is None else message.content
    said = [content.strip() if isinstance(content, str) else compact(content)]
    said += [f"{call.name}({compact(call.arguments)})" for call in message.tool_calls]
    return f"{who}: {' '.join(text for text in said if text)}"


def footer(completion: Completion, report: Report) -> str:
    """Speed and cache figures of one answer, on one line."""
    times = completion.timings
    prompt = completion.prompt_tokens
    # The first answer token comes out of the prefill.
    decoded = max(0, completion.completion_tokens - 1)
    parts = [f"prompt {prompt} tokens in {times.prefill:.2f} s"]
    if decoded and times.decode > 0:
        parts.append(f"answer {decoded / times.decode:.1f} tokens/s")
    parts.append(f"experts cached {report.hit_rate:.0%}")
    parts.append(f"read {size(report.bytes_read)}")
    return "[" + ", ".join(parts) + "]"


def print_footer(answer: Answer) -> None:
    """The footer of an answer, on stderr."""
    note(footer(answer.completion, answer.report))


def phases(report: Report) -> str:
    """Where the time, the experts and the memory went, a line each."""
    lines = [
        f"cb1      {report.mix_seconds:.3f} s to encode, {report.router_wait_seconds:.3f} s until "
        "the router had chosen",
        f"io       {report.fill_seconds:.3f} s of reads: {report.overlapped_read_seconds:.3f} s "
        f"overlapped, {report.exposed_read_seconds:.3f} s exposed",
        f"cb2      {report.routed_seconds:.3f} s to plan and encode, "
        f"{report.eager_commits:,} commits ahead of their reads",
        f"map      {report.all_hit_layers:,} layers found whole by the device, "
        f"{report.plans_skipped:,} host plans skipped",
        f"head     {report.head_seconds:.3f} s",
        f"experts  {report.hits:,} hits, {report.misses:,} misses, {report.evictions:,} evictions, "
        f"{size(report.bytes_read)} read",
    ]
    memory = report.memory
    if memory.own is not None and memory.mapped is not None:
        lines.append(
            f"memory   {size(memory.own)} own, at most {size(memory.peak_own or 0)}; "
            f"{size(memory.mapped)} mapped, at most {size(memory.peak_mapped or 0)}"
        )
    return "\n".join(lines)


def print_phases(answer: Answer) -> None:
    """The phases of an answer, on stderr."""
    note(phases(answer.report))


@contextmanager
def byte_progress() -> Iterator[Update]:
    """A progress bar on stderr: call it with a description, bytes done, and bytes in all.

    A detail, such as the file at hand, is shown at the end of the line.
    """
    bar = Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,  # rich would end with an empty line
    )
    tasks: dict[str, int] = {}

    def update(description: str, done: int, total: int, detail: str = "") -> None:
        if description not in tasks:
            tasks[description] = bar.add_task(description, total=total, detail=detail)
        task: Any = tasks[description]
        bar.update(task, completed=done, total=total, detail=detail)

    with bar:
        yield update
