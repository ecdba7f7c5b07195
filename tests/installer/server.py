"""A small HTTP server with byte ranges for tests, which can be told to misbehave.

Each request may meet a `Fault`; what was asked, and which ranges were answered in full, is kept.
"""

import os
import random
import re
import socket
import socketserver
import ssl
import struct
import threading
import zlib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import httpx

from mference.installer.http_rules import RetryPolicy
from mference.installer.http_source import HttpSource

COMMIT = "c" * 40


@dataclass(frozen=True)
class Fault:
    """One way to misbehave; all of it is optional.

    `delay` seconds pass before the answer. `status` replaces the right one, without a body unless
    `whole`, which sends the whole file. `headers` replace the right ones, or remove one by None;
    `{first}`, `{last}`, `{size}` and `{path}` in them are filled in. `extra` follows the body, in
    a second chunk of chunked encoding if `chunked`. With `stop`, the answer breaks off before its
    first byte, in its headers or after the share `at` of its body; `then` the connection is
    closed, reset, or silent for as long as the client bears it.
    """

    delay: float = 0
    status: int | None = None
    whole: bool = False
    headers: Mapping[str, str | None] = field(default_factory=dict)
    extra: bytes = b""
    chunked: bool = False
    stop: Literal["start", "headers", "body"] | None = None
    at: float = 0.5
    then: Literal["close", "reset", "stall"] = "close"

    @property
    def harmless(self) -> bool:
        """Whether the answer is right all the same."""
        return not (self.status or self.headers or self.extra or self.stop)


@dataclass(frozen=True)
class Asked:
    """One request: [first, end) of a file, all of it if no range was asked for.

    `tensors` says that it asks for tensors of a shard, not for its header; `process` is the
    client's number, since what a killed one asked for may be read after its end.
    """

    method: str
    name: str
    first: int
    end: int
    tensors: bool
    process: str | None


When = Callable[[Asked], bool]


def tensors(asked: Asked) -> bool:
    """Requests for tensors."""
    return asked.tensors


def request_for(method: str, name: str) -> When:
    """Requests for a file whose name ends so."""
    return lambda asked: asked.method == method and asked.name.endswith(name)


@dataclass
class Armed:
    """A fault that waits: it lets `skip` requests pass and meets the next `times`."""

    fault: Fault
    when: When
    skip: int
    times: int


@dataclass
class Unrest:
    """Passing faults at random: of all requests about `share`, of one range never more than two.

    They depend on the seed and on what is asked for, not on the order of requests. What is asked
    for after a body broke off is the rest of the same range: it has the same end.
    """

    seed: int
    share: float
    stall: bool = True
    seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, asked: Asked) -> Fault | None:
        place = f"{asked.method} {asked.name} {asked.end}"
        self.seen[place] += 1
        turn = self.seen[place]
        chance = random.Random(zlib.crc32(f"{self.seed} {turn} {place}".encode()))
        if turn > 2 or chance.random() >= self.share:
            return None
        return chance.choice(
            [
                Fault(stop="start", then="reset"),
                Fault(stop="start"),
                Fault(stop="headers"),
                Fault(stop="body", at=chance.random() * 0.99),
                Fault(stop="body", at=chance.random() * 0.99, then="reset"),
                Fault(status=503, headers={"Retry-After": "0"}),
                Fault(status=429),
                Fault(delay=chance.random() * 0.02),
                *([Fault(stop="body", then="stall")] if self.stall else []),
            ]
        )


@dataclass
class RangeServer:
    """What the server serves, and how it fails; `failures` are used up one a request.

    `requests` names every request, `asked` has all of it, and `delivered` are the ranges that were
    answered rightly and in full. `faults` is asked for the fault of each request.
    """

    folder: Path
    base: str = ""
    statuses: dict[str, int] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    failures: list[int | str] = field(default_factory=list)
    fail_on: tuple[str, str] | None = None
    accept_ranges: bool = True
    password: tuple[str, str] | None = None
    faults: Callable[[Asked], Fault | None] | None = None
    armed: list[Armed] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    delivered: list[Asked] = field(default_factory=list)
    certificate: Path | None = None
    closing: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def source(self, attempts: int = 4, timeout: float = 10, connections: int = 1) -> HttpSource:
        """A source that reads from here, without pauses and without proxies."""
        return http_source(self.base, attempts, timeout, connections, self.certificate)

    def arm(
        self, fault: Fault, when: When = tensors, *, skip: int = 0, times: int = 1
    ) -> "RangeServer":
        """Let a fault meet the requests that `when` accepts."""
        self.armed.append(Armed(fault, when, skip, times))
        return self

    def forget(self) -> None:
        """Disarm every fault and forget every request."""
        with self.lock:
            self.armed.clear()
            self.faults = None
            self.requests.clear()
            self.asked.clear()
            self.delivered.clear()

    def fault_of(self, asked: Asked) -> Fault | None:
        """The fault to show for this request, if it is the turn of one."""
        for armed in self.armed:
            if armed.times and armed.when(asked):
                if armed.skip:
                    armed.skip -= 1
                else:
                    armed.times -= 1
                    return armed.fault
        if self.failures and self.fail_on in (None, (asked.method, asked.name)):
            if isinstance(self.failures[0], int):
                return Fault(status=int(self.failures.pop(0)))
            if asked.method == "GET":
                self.failures.pop(0)
                return Fault(stop="body")
        return self.faults(asked) if self.faults else None


def http_source(
    base: str, attempts: int, timeout: float, connections: int, certificate: Path | None = None
) -> HttpSource:
    """A source without pauses between attempts; it trusts what `certificate` has signed."""
    # What a default context loads is of no use here and takes longer than a small install.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if certificate:
        context.load_verify_locations(certificate)
    client = httpx.Client(
        trust_env=False,
        timeout=timeout,
        verify=context,
        headers={"X-Process": str(os.getpid())},
        limits=httpx.Limits(max_connections=connections),
    )
    policy = RetryPolicy(attempts=attempts, base_ns=0)
    return HttpSource(base, commit=COMMIT, policy=policy, client=client)


def basic(password: tuple[str, str]) -> str:
    """The header by which a user and password are sent."""
    return f"Basic {b64encode(':'.join(password).encode()).decode()}"


class BrokenOffError(Exception):
    """The answer breaks off here, and with it the connection."""


class Handler(socketserver.StreamRequestHandler):
    """One connection; `state` and `context` are set by a subclass."""

    disable_nagle_algorithm = True
    state: RangeServer
    context: ssl.SSLContext | None
    spoiled = False

    def setup(self) -> None:
        if self.context:
            self.request = self.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        while line := self.rfile.readline().decode("latin-1").split():
            headers = {}
            while text := self.rfile.readline().decode("latin-1").strip():
                name, _, value = text.partition(":")
                headers[name.lower()] = value.strip()
            try:
                self.answer(line[0], line[1], headers)
            except BrokenOffError:
                return

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        server = self.state
        name = unquote(urlsplit(path).path).lstrip("/")
        file = server.folder / name
        size = file.stat().st_size if file.is_file() else 0
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        first, end = (int(match[1]), int(match[2]) + 1) if match else (0, size)
        in_tensors = method == "GET" and is_in_tensors(file, first)
        asked = Asked(method, name, first, end, in_tensors, headers.get("x-process"))
        with server.lock:
            server.requests.append((method, name))
            server.asked.append(asked)
            fault = server.fault_of(asked) or Fault()
        self.wait(fault.delay)
        status = fault.status or server.statuses.get(name)
        if server.password and headers.get("authorization") != basic(server.password):
            status = 401
        if not file.is_file():
            status = status or 404
        refused = status is not None and not fault.whole
        if fault.whole:
            first, end = 0, size
        about: dict[str, str | None] = {"Content-Length": str(0 if refused else end - first)}
        if not refused:
            if match and not fault.whole:
                about["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
            if server.accept_ranges:
                about["Accept-Ranges"] = "bytes"
            about["X-Repo-Commit"] = server.commits.get(name)
        filled = {"first": first, "last": end - 1, "size": size, "path": path}
        about |= {k: v and v.format(**filled) for k, v in fault.headers.items()}
        if fault.chunked:
            about["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {status or (206 if match else 200)} x"]
        lines += [f"{k}: {v}" for k, v in about.items() if v is not None]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        body = b""
        if method == "GET" and not refused:
            with file.open("rb") as opened:
                opened.seek(first)
                body = opened.read(end - first)
        # Nobody can read an answer after bytes that belong to none.
        good = fault.harmless and not refused and match is not None and not self.spoiled
        self.spoiled |= bool(fault.extra)
        if good:
            # Before the last byte is out: whoever has it may look here at once.
            server.delivered.append(asked)
        try:
            self.send(head, body, fault)
        except OSError:
            if good:
                server.delivered.remove(asked)
            raise BrokenOffError from None

    def send(self, head: bytes, body: bytes, fault: Fault) -> None:
        if fault.stop:
            parts = {
                "start": b"",
                "headers": head[: len(head) // 2],
                "body": head + body[: int(len(body) * fault.at)],
            }
            self.request.sendall(parts[fault.stop])
            self.break_off(fault)
        if fault.chunked:
            body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body, fault.extra, b""))
            self.request.sendall(head + body)
        else:
            self.request.sendall(head + body + fault.extra)

    def break_off(self, fault: Fault) -> None:
        if fault.then == "stall":
            self.wait(60)
        if fault.then == "reset":
            linger = struct.pack("ii", 1, 0)
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.request.close()
        raise BrokenOffError

    def wait(self, seconds: float) -> None:
        if seconds and self.state.closing.wait(seconds):
            raise BrokenOffError

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        if self.context:
            self.request.close()


def is_in_tensors(file: Path, first: int) -> bool:
    """Whether byte `first` of a file belongs to a shard's tensors."""
    if file.suffix != ".safetensors" or not file.is_file():
        return False
    with file.open("rb") as opened:
        return first >= 8 + int.from_bytes(opened.read(8), "little")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no event."""


@contextmanager
def serve(folder: Path, context: ssl.SSLContext | None = None) -> Iterator[RangeServer]:
    """Serve a folder on 127.0.0.1 while the context lasts, over TLS if it has one."""
    server = RangeServer(folder)
    handler = type("Bound", (Handler,), {"state": server, "context": context})
    listener = Server(("127.0.0.1", 0), handler)
    server.base = f"{'https' if context else 'http'}://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
