"""A Hugging Face hub for tests, over TLS: one host for repositories, another for large files."""

import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import trustme

LARGE = (".safetensors", "tokenizer.json")
SIGNATURE = "Signature=very-secret"


@dataclass(frozen=True)
class Request:
    """One request: which host got it, and what it carried."""

    host: str
    method: str
    path: str
    authorization: str | None


@dataclass
class Hub:
    """What the hub serves and how it behaves. `status` is what it answers to everything.

    With `hold_after`, the large-file host answers that many ranges of shards' tensors, sets
    `reached` at the next and waits for `released`.
    """

    folder: Path
    repo: str
    revision: str
    certificate: Path
    token: str | None = None
    commit: str | None = None
    status: int | None = None
    hold_after: int | None = None
    endpoint: str = ""
    store: str = ""
    requests: list[Request] = field(default_factory=list)
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach this hub and no other."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(self.certificate.parent),
            "SSL_CERT_FILE": str(self.certificate),
            "NO_PROXY": "*",
        }

    def payload(self) -> list[str]:
        """The files whose bytes the large-file host was asked for, in order."""
        return [unquote(r.path).split("/")[-1].split("?")[0] for r in self.at("store")]

    def at(self, host: str) -> list[Request]:
        return [request for request in self.requests if request.host == host]


class Handler(BaseHTTPRequestHandler):
    """Both hosts; `host` and `hub` are set by a subclass."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    host: str
    hub: Hub

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        hub = self.hub
        given = self.headers.get("Authorization")
        hub.requests.append(Request(self.host, self.command, self.path, given))
        path = unquote(urlsplit(self.path).path)
        name = path.rsplit("/", 1)[-1]
        file = hub.folder / name
        if self.host == "store":
            if hub.hold_after is not None and name.endswith(".safetensors") and self.first() > 8:
                self.hold()
            self.send_file(file, ETag=f'"{digest(file)}"')
        elif hub.status:
            self.send(hub.status)
        elif hub.token and given != f"Bearer {hub.token}":
            self.send(401, **{"X-Error-Code": "GatedRepo"})
        elif path.startswith("/api/resolve-cache/"):
            self.send_file(file, **self.about(file))
        elif path != f"/{hub.repo}/resolve/{hub.revision}/{name}" or not file.is_file():
            self.send(404, **{"X-Error-Code": "EntryNotFound"})
        elif name.endswith(LARGE):
            place = f"{hub.store}/{digest(file)}/{name}?{SIGNATURE}"
            linked = {"X-Linked-Size": str(file.stat().st_size), "X-Xet-Hash": digest(file)}
            self.send(302, Location=place, **linked, **self.about(file))
        else:
            place = f"/api/resolve-cache/models/{hub.repo}/{hub.revision}/{name}"
            self.send(307, Location=place, **self.about(file))

    def hold(self) -> None:
        if self.hub.hold_after:
            self.hub.hold_after -= 1
            return
        self.hub.reached.set()
        self.hub.released.wait(60)

    def first(self) -> int:
        """The first byte asked for."""
        return int(self.headers["Range"].removeprefix("bytes=").split("-")[0])

    def about(self, file: Path) -> dict[str, str]:
        return {
            "X-Repo-Commit": self.hub.commit or self.hub.revision,
            "X-Linked-ETag": f'"{digest(file)}"',
            "Accept-Ranges": "bytes",
        }

    def send_file(self, file: Path, **headers: str) -> None:
        data = file.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked:
            start, end = int(asked[1]), int(asked[2])
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
            data = data[start : end + 1]
        self.send(206 if asked else 200, data, **headers)

    def send(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed is no event."""


@cache
def digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()


@contextmanager
def serve_hub(folder: Path, repo: str, revision: str, workplace: Path) -> Iterator[Hub]:
    """Serve a folder as a repository; the authority's certificate is kept in `workplace`."""
    authority = trustme.CA()
    certificate = workplace / "authority.pem"
    authority.cert_pem.write_to_path(str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    hub = Hub(folder, repo, revision, certificate)
    with ExitStack() as stack:
        hub.endpoint = f"https://localhost:{start(hub, 'hub', context, stack)}"
        hub.store = f"https://127.0.0.1:{start(hub, 'store', context, stack)}"
        try:
            yield hub
        finally:
            hub.released.set()


def start(hub: Hub, host: str, context: ssl.SSLContext, stack: ExitStack) -> int:
    """Start one of the two hosts; its port."""
    handler = type("Bound", (Handler,), {"hub": hub, "host": host})
    server = Server(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    return server.server_address[1]
