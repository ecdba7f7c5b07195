"""Installs in children forked from one warm process, which can be killed or failed at any step.

The process beside this one has imported everything, so a child costs milliseconds. A step is a
call that changes a file or a directory beside the output; `transitions.c` counts them.
"""

import ctypes
import json
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from mference.families import ENTRIES
from mference.installer import FolderSource, Limits, Progress, discard_partial
from mference.installer.installer import carry_out
from mference.installer.paths import prepared_paths
from mference.installer.repairing import carry_out_repair
from mference.installer.run import Run
from tests.installer.server import http_source

ROOT = Path(__file__).parents[2]
MODES = ("count", "before", "torn", "power", "fail once", "fail from here")
Mode = Literal["count", "before", "torn", "power", "fail once", "fail from here"]


@dataclass(frozen=True)
class Order:
    """What a child is to do with `output`, and what is to become of it.

    It installs from `source`, a folder or an address, unless the action is another one. It is
    interrupted once `pause_at` source bytes were copied, killed after `kill_after` seconds, and
    meets `mode` at step `step`: death before it, death after it (in the middle of a write), a
    power cut, or a failure with the number `error`, of steps that need room only if `growing`.
    """

    output: str
    source: str = ""
    action: Literal["install", "discard", "repair"] = "install"
    resume: bool = False
    overwrite: bool = False
    chunk: int = 4096
    connections: int = 1
    timeout: float = 10
    pause_at: int | None = None
    kill_after: float | None = None
    mode: Mode | None = None
    step: int = 0
    error: int = 0
    growing: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a child: killed, or ended with an error's class and text, or well.

    `process` is its number, `steps` are those it made, if they were counted, and `reused` the
    bytes that it need not copy.
    """

    process: int
    killed: bool
    error: str | None = None
    message: str = ""
    notes: str = ""
    steps: tuple[str, ...] = ()
    reused: int = 0

    @property
    def well(self) -> bool:
        """Whether it did what it was told."""
        return not self.killed and self.error is None


class Installers:
    """A process that forks a child for each order, one at a time."""

    def __init__(self, library: Path) -> None:
        preloaded = f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.installer.forked", str(library)],
            cwd=ROOT,
            env=os.environ | {"LD_PRELOAD": preloaded},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, order: Order) -> Outcome:
        """Carry out an order in a child of its own."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Outcome(**answer | {"steps": tuple(answer["steps"])})

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@contextmanager
def installers(library: Path) -> Iterator[Installers]:
    """A process for orders, while the context lasts."""
    process = Installers(library)
    try:
        yield process
    finally:
        process.close()


def main() -> None:
    """Read orders, a line each, and answer each with a line."""
    logging.disable()
    transitions = ctypes.CDLL(sys.argv[1])
    for line in sys.stdin:
        order = Order(**json.loads(line))
        trace = os.memfd_create("steps")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            try:
                result = obey(order, transitions, trace)
            except BaseException as exc:
                notes = "\n".join(getattr(exc, "__notes__", ()))
                result = {"error": type(exc).__name__, "message": str(exc), "notes": notes}
            os.write(writing, json.dumps(result).encode())
            os._exit(0)
        os.close(writing)
        answer = watch(child, reading, order.kill_after)
        steps = os.pread(trace, 1 << 20, 0).decode().splitlines()
        os.close(trace)
        os.close(reading)
        print(json.dumps(answer | {"steps": steps}), flush=True)


def obey(order: Order, transitions: ctypes.CDLL, trace: int) -> dict[str, Any]:
    """Carry out an order in this process."""
    paths = prepared_paths(order.output)
    if order.mode:
        transitions.arm(
            os.fsencode(paths.final.parent),
            MODES.index(order.mode),
            ctypes.c_long(order.step),
            order.error,
            order.growing,
            trace,
        )
    if order.action == "discard":
        discard_partial(order.output)
    elif order.action == "repair":
        carry_out_repair(run_of(order))
    else:
        return {"reused": carry_out(run_of(order)).reused}
    return {}


def run_of(order: Order) -> Run:
    """The run that an order describes."""

    def interrupt(step: Progress) -> None:
        if order.pause_at is not None and step.phase == "copy" and step.done >= order.pause_at:
            raise KeyboardInterrupt

    remote = "://" in order.source
    return Run(
        http_source(order.source, 4, order.timeout, order.connections)
        if remote
        else FolderSource(order.source),
        ENTRIES["demo"],
        prepared_paths(order.output),
        overwrite=order.overwrite,
        resume=order.resume,
        allow_unpinned=True,
        report=interrupt,
        limits=Limits(chunk=order.chunk, connections=order.connections, gather=0),
    )


def watch(child: int, reading: int, kill_after: float | None) -> dict[str, Any]:
    """What a child says before it ends; it is killed when its time is over."""
    said = b""
    while True:
        if not select.select([reading], [], [], kill_after)[0]:
            os.kill(child, signal.SIGKILL)
            kill_after = None
            continue
        data = os.read(reading, 65536)
        if not data:
            break
        said += data
    _, status = os.waitpid(child, 0)
    return {
        "process": child,
        "killed": os.WIFSIGNALED(status),
        **(json.loads(said) if said else {}),
    }


if __name__ == "__main__":
    main()
