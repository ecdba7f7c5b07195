"""`mference doctor`: what this machine can run, and whether it computes right."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mference import __version__
from mference.cli import options
from mference.cli.exits import FAILURE
from mference.cli.output import note, size
from mference.doctor import (
    ComputeSpeed,
    DiskSpeed,
    Machine,
    Need,
    Rung,
    SpeedForecast,
    Verdict,
    inspect_machine,
    measure_compute,
    measure_disk,
    need_of_entry,
    need_of_install,
    self_test,
)
from mference.doctor.measure import ASSUMED_DISK
from mference.errors import ConfigError
from mference.families import ENTRIES
from mference.jsontext import compact
from mference.store import Install, open_install

HITS_NOTE = """\
hits: what a cache found of experts routed as Gemma 4 routes text; a model with
other experts is assumed to behave alike at the same share of slots."""


def doctor(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME|DIR", help="Only this model, by name or where it is installed."),
    ] = None,
    max_context: options.MaxContext = 4096,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not measure the disk: assume a speed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    run_self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Compare the demo model's tokens with golden ones."),
    ] = False,
) -> None:
    """Tell what this machine can run, and how fast; or test that it computes right.

    Measures memory, processor and disk for a few seconds. Exits with 1 if the model asked for,
    or every model, cannot run here, or if the self-test finds another token.

    Examples:

      mference doctor

      mference doctor --model gemma4 --max-context 32768

      mference doctor --self-test
    """
    if run_self_test:
        if model is not None or quick:
            raise ConfigError("--self-test goes with --json alone: it runs the embedded model")
        _test(as_json=as_json)
        return
    options.check_context(max_context)
    install = None
    if model is not None and model not in ENTRIES:
        if not Path(model).exists():
            raise ConfigError(
                f"--model {model}: neither a directory nor a model; choose one of "
                f"{', '.join(ENTRIES)}"
            )
        install = open_install(model, allow_unpinned=True, warn=lambda _line: None)
    machine = inspect_machine(Path())
    compute = measure_compute()
    disk = ASSUMED_DISK if quick else _measured_disk(install)
    if install is not None:
        needs = [need_of_install(install, machine, compute, disk, context=max_context)]
    else:
        names = [model] if model is not None else list(ENTRIES)
        needs = [
            need_of_entry(ENTRIES[name], machine, compute, disk, context=max_context)
            for name in names
        ]
    if as_json:
        print(compact(_document(machine, compute, disk, needs)))
    else:
        _print_machine(machine, compute, disk)
        print(f"\nat a context of {max_context:,} tokens, half of it filled:")
        for need in needs:
            print()
            _print_need(need, compute, sums=need.runs or model is not None)
        print(f"\n{HITS_NOTE}")
    problems = [need.problem for need in needs]
    if all(problems):
        note(f"mference: {needs[0].name}: {problems[0]}" if model else "mference: no model fits")
        raise typer.Exit(FAILURE)


def _measured_disk(install: Install | None) -> DiskSpeed:
    """The speed of the disk that would hold installs, or of the one that holds this one."""
    try:
        return measure_disk(Path.cwd(), install)
    except OSError as error:
        note(f"mference: the disk was not measured: {error.strerror or error}")
        return ASSUMED_DISK


# ---- self-test ----


def _test(*, as_json: bool) -> None:
    verdicts = self_test(told=None if as_json else _print_verdict)
    wrong = [v for v in verdicts if v.difference]
    if as_json:
        print(compact([asdict(v) for v in verdicts]))
    if wrong:
        note(
            f"mference: {wrong[0].device} does not compute what it should: {wrong[0].difference}. "
            "Do not trust its answers, and report this with the output of `mference doctor`."
        )
        raise typer.Exit(FAILURE)


def _print_verdict(verdict: Verdict) -> None:
    result = verdict.difference or f"all {verdict.tokens} tokens as they should be"
    print(f"{verdict.device:<14} {result}", flush=True)


# ---- text ----


def _rate(speed: float) -> str:
    return f"{size(round(speed))}/s"


def _print_machine(machine: Machine, compute: ComputeSpeed, disk: DiskSpeed) -> None:
    limited = f", limited to {size(machine.memory_limit)}" if machine.memory_limit else ""
    print(f"mference {__version__} on {machine.system}")
    print(f"  processor  {machine.processor}, {machine.cores} cores")
    print(f"  kernels    {', '.join(machine.isas)} (the last one is used)")
    print(f"  devices    {', '.join(machine.devices)}")
    print(f"  memory     {size(machine.memory)}, {size(machine.memory_available)} free{limited}")
    print(f"  disk       {size(machine.disk_free)} free in {machine.disk_path}")
    print(f"  speed      memory {_rate(compute.memory)}, 4-bit products {_rate(compute.product)}")
    how = "assumed" if disk is ASSUMED_DISK else f"reads of {size(disk.read_bytes)}"
    print(f"             disk {_rate(disk.cold)}, page cache {_rate(disk.cached)} ({how})")


def _print_need(need: Need, compute: ComputeSpeed, *, sums: bool) -> None:
    print(f"{need.name}: {need.title}")
    if not need.runs:
        print("  forecast; this version cannot run it")
    if need.download_bytes or need.disk_bytes:
        parts = [f"download {size(need.download_bytes)}"] if need.download_bytes else []
        parts += [f"on disk {size(need.disk_bytes)}"] if need.disk_bytes else []
        print(f"  {', '.join(parts)}: {'does not fit' if need.disk_problem else 'fits'}")
        if need.disk_problem:
            print(f"  {need.disk_problem}")
    if not need.rungs:
        print("  dense: it has no experts to stream, and no forecast yet")
        return
    print(f"  {'slots':>8} {'own memory':>12} {'mapped files':>13} {'hits':>6} {'tokens/s':>9}")
    for rung in need.rungs:
        _print_rung(rung)
    if need.auto is None:
        print("  auto: no number of slots fits what is free")
        return
    chosen = next((r for r in need.rungs if r.slots == need.auto), None)
    print(f"  auto takes {need.auto} slots")
    if sums and chosen and chosen.speed:
        _print_sum(chosen.speed, compute)


def _print_rung(rung: Rung) -> None:
    line = f"  {rung.slots:>8} {size(rung.memory.own):>12} {size(rung.memory.mapped):>13}"
    if rung.speed is None:
        print(f"{line}  does not fit: {rung.problem}")
    else:
        print(f"{line} {rung.speed.hit_rate:>6.0%} {rung.speed.tokens_per_second:>9,.1f}")


def _print_sum(speed: SpeedForecast, compute: ComputeSpeed) -> None:
    """The sum behind a speed, one addend a line."""

    def line(sign: str, what: str, seconds: float) -> None:
        print(f"  {sign} {what:<58}{seconds * 1000:>8.2f} ms")

    print(f"  a token, with {speed.position} tokens before it:")
    line(" ", f"common weights, {size(speed.weight_bytes)}", speed.weights)
    line("+", f"chosen experts, {size(speed.expert_bytes)}", speed.experts)
    line("+", f"keys, values and states, {size(speed.state_bytes)}", speed.state)
    line("+", f"host and device waiting, {compute.round_trip * 1e6:.0f} µs a layer", speed.layers)
    if speed.read_bytes:
        what = f"missing experts, {size(speed.read_bytes)}, {speed.cached:.0%} in the page cache"
        line("+", what, speed.reads)
    line("=", f"{speed.tokens_per_second:,.1f} tokens/s", speed.seconds)


# ---- JSON ----


def _document(
    machine: Machine, compute: ComputeSpeed, disk: DiskSpeed, needs: list[Need]
) -> dict[str, Any]:
    return {
        "version": __version__,
        "machine": asdict(machine),
        "compute": {**asdict(compute), "product": compute.product},
        "disk": {**asdict(disk), "measured": disk is not ASSUMED_DISK},
        "models": [_need_document(need) for need in needs],
    }


def _need_document(need: Need) -> dict[str, Any]:
    document = asdict(need) | {"problem": need.problem}
    document["rungs"] = [
        {
            "slots": rung.slots,
            "problem": rung.problem,
            "memory": {
                **asdict(rung.memory), "own": rung.memory.own, "mapped": rung.memory.mapped,
            },
            "speed": rung.speed and {
                **asdict(rung.speed),
                "seconds": rung.speed.seconds,
                "tokens_per_second": rung.speed.tokens_per_second,
            },
        }
        for rung in need.rungs
    ]  # fmt: skip
    return document
