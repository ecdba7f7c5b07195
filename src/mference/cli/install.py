"""`mference install`: repack a checkpoint into a `.gturbo` directory."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import mference
from mference.cli import options
from mference.cli.exits import termination_interrupts
from mference.cli.output import byte_progress, note, size
from mference.errors import ConfigError, InstallError
from mference.families import ENTRIES
from mference.installer import (
    DEFAULT_CONNECTIONS,
    MAX_CONNECTIONS,
    InstallPlan,
    InstallReport,
    discard_partial,
)
from mference.installer.address import parse_address
from mference.jsontext import compact

DEFAULT_MODEL = "gemma4"


@dataclass(frozen=True)
class Request:
    """The flags of one call, in agreement with each other. `model` is an entry's name."""

    output: Path
    model: str
    source: str | None
    base_url: str | None
    overwrite: bool
    resume: bool
    dry_run: bool
    discard: bool
    allow_unpinned: bool
    connections: int | None
    json: bool


def install(
    output: Annotated[Path, typer.Option(metavar="DIR", help="The directory to make.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"The pinned checkpoint, {DEFAULT_MODEL} by default; 'mference families' lists "
            "them.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="A checkpoint's folder, or the address above its files, instead of the hub.",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The Hugging Face hub to use, instead of HF_ENDPOINT."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the install there, once the new one is done."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted install.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be downloaded, and write nothing.")
    ] = False,
    allow_unpinned: options.AllowUnpinned = False,
    connections: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Ranges to read at the same time, 1 to {MAX_CONNECTIONS}; {DEFAULT_CONNECTIONS} "
            "by default.",
        ),
    ] = None,
    discard: Annotated[
        bool,
        typer.Option("--discard-partial", help="Remove what an unfinished install left, and exit."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, sizes in bytes.")
    ] = False,
) -> None:
    """Install a checkpoint: copy its weights, unchanged, into the layout that streams.

    They come from the Hugging Face hub (HF_ENDPOINT, HF_TOKEN), unless a source is named.

    Examples:

      mference install --model gemma4 --output gemma4.gturbo

      mference install --model gemma4 --source ./gemma-4-26b-a4b-it-4bit --output gemma4.gturbo

      mference install --model demo --output demo.gturbo
    """
    request = checked(
        output=output,
        model=model,
        source=source,
        base_url=base_url,
        overwrite=overwrite,
        resume=resume,
        dry_run=dry_run,
        discard=discard,
        allow_unpinned=allow_unpinned,
        connections=connections,
        json=json,
    )
    if request.discard:
        discard_partial(request.output)
        note(f"Removed what was left of an unfinished install of {request.output}.")
        return
    result = _carried_out(request)
    if request.json:
        print(compact(_fields(result)))
    elif isinstance(result, InstallPlan):
        _show_plan(result)
    else:
        _show_report(result)


def checked(*, output: Path, model: str | None, **flags: Any) -> Request:  # noqa: ANN401
    """The request that these flags make.

    Raises:
        ConfigError: one has no possible value, or two do not go together.
    """
    if model is not None and model not in ENTRIES:
        raise ConfigError(f"--model {model}: unknown model; choose one of {', '.join(ENTRIES)}")
    request = Request(output=output, model=model or DEFAULT_MODEL, **flags)
    if request.discard and request.resume:
        raise ConfigError("--resume and --discard-partial are mutually exclusive")
    if request.discard and (
        model is not None
        or any(value not in (None, False) for name, value in flags.items() if name != "discard")
    ):
        raise ConfigError("--discard-partial goes with --output alone")
    if request.connections is not None and not 1 <= request.connections <= MAX_CONNECTIONS:
        raise ConfigError(f"--connections must be 1 to {MAX_CONNECTIONS}")
    if request.source is not None and request.base_url is not None:
        raise ConfigError("--base-url is the hub's address: give it or --source, not both")
    if request.source == "":
        raise ConfigError("--source is empty: name a folder or an http(s) address")
    if request.base_url is not None:
        try:
            parse_address(request.base_url, "--base-url")
        except InstallError as error:
            raise ConfigError(str(error)) from None
    return request


def _carried_out(request: Request) -> InstallPlan | InstallReport:
    with byte_progress() as update, termination_interrupts():
        run = partial(
            mference.install,
            request.source,
            request.output,
            entry=request.model,
            base_url=request.base_url,
            overwrite=request.overwrite,
            resume=request.resume,
            allow_unpinned=request.allow_unpinned,
            connections=request.connections or DEFAULT_CONNECTIONS,
            progress=lambda p: update(p.phase, p.done, p.total),
        )
        return run(dry_run=True) if request.dry_run else run()


def _show_plan(plan: InstallPlan) -> None:
    verb = "download" if "://" in plan.source else "copy"
    print(f"{f'to {verb}':<12} {size(plan.download)} from {plan.source}")
    print(f"to install   {size(plan.installed)} in {plan.path}")
    print(f"disk space   {size(plan.required)} needed, {size(plan.free)} free")


def _show_report(report: InstallReport) -> None:
    reused = f", {size(report.reused)} of it copied before" if report.reused else ""
    note(f"Installed {report.path} ({size(report.bytes)}{reused}).")


def _fields(result: InstallPlan | InstallReport) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(result).items() if name != "entry"},
        "path": str(result.path),
        "model": result.entry.name if result.entry else None,
    }
