"""A small HTTP server with byte ranges for tests, which can be told to misbehave."""

import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import httpx

from mference.installer.http_rules import RetryPolicy
from mference.installer.http_source import HttpSource

COMMIT = "c" * 40


@dataclass
class RangeServer:
    """What the server serves, and how it fails; `failures` are used up one a request."""

    folder: Path
    base: str = ""
    statuses: dict[str, int] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    failures: list[int | str] = field(default_factory=list)
    fail_on: tuple[str, str] | None = None
    accept_ranges: bool = True
    password: tuple[str, str] | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)

    def source(self, attempts: int = 4) -> HttpSource:
        """A source that reads from here, without pauses and without proxies."""
        policy = RetryPolicy(attempts=attempts, base_ns=0)
        client = httpx.Client(trust_env=False, timeout=10)
        return HttpSource(self.base, commit=COMMIT, policy=policy, client=client)

    def take_failure(self, method: str, name: str) -> int | str | None:
        """The failure to show for this request, if it is the turn of one."""
        if not self.failures or (self.fail_on and self.fail_on != (method, name)):
            return None
        if self.failures[0] == "truncated body" and method != "GET":
            return None
        return self.failures.pop(0)


def basic(password: tuple[str, str]) -> str:
    """The header by which a user and password are sent."""
    return f"Basic {b64encode(':'.join(password).encode()).decode()}"


def handler_for(server: RangeServer) -> type[BaseHTTPRequestHandler]:
    """A request handler bound to a server's settings."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            name = unquote(self.path).lstrip("/")
            server.requests.append((self.command, name))
            failure = server.take_failure(self.command, name)
            path = server.folder / name
            status = failure if isinstance(failure, int) else server.statuses.get(name)
            if server.password and self.headers.get("Authorization") != basic(server.password):
                status = 401
            if status or not path.is_file():
                self.send_response(status or 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            size = path.stat().st_size
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, end = (int(match[1]), int(match[2])) if match else (0, size - 1)
            self.send_response(206 if match else 200)
            self.send_header("Content-Length", str(end - start + 1))
            if match:
                self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
            if server.accept_ranges:
                self.send_header("Accept-Ranges", "bytes")
            if name in server.commits:
                self.send_header("X-Repo-Commit", server.commits[name])
            if failure:
                self.send_header("Connection", "close")
            self.end_headers()
            if body:
                with path.open("rb") as file:
                    file.seek(start)
                    data = file.read(end - start + 1)
                self.wfile.write(data[: len(data) // 2] if failure else data)
            if failure:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serve(folder: Path) -> Iterator[RangeServer]:
    """Serve a folder on 127.0.0.1 while the context lasts."""
    server = RangeServer(folder)
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(server))
    http.daemon_threads = True
    server.base = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
