"""A checkpoint behind HTTP: metadata by HEAD, bytes by exact range requests."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import httpcore
import httpx

from mference.errors import (
    BodyExceeded,
    BodyTruncated,
    HttpStatusError,
    InstallError,
    ProtocolError,
    RangeError,
    Unreachable,
)
from mference.installer.address import parse_address, shown
from mference.installer.http_rules import (
    MAX_JITTER_NS,
    REDIRECT_STATUSES,
    Metadata,
    RetryPolicy,
    check_range_response,
    next_hop,
    read_metadata,
    strong_etag,
    with_retries,
)
from mference.installer.paths import file_url
from mference.installer.source import BLOCK, Interrupted, Sink

T = TypeVar("T")
CONNECT_TIMEOUT_S = 30.0
STALL_TIMEOUT_S = 60.0
MAX_CONNECTIONS = 16
# A body that broke off after this many bytes or more has not failed: it is continued at once.
_PROGRESS = 64 << 10
_IDENTITY = {"Accept-Encoding": "identity"}


@dataclass
class _Cursor:
    """How far a read has come: the next byte, and the end."""

    at: int
    end: int


class HttpSource:
    """The files below one base address, which may be any server that answers byte ranges.

    A user and password in the address, or else the bearer `token`, go to its own host and port
    only. `commit` stands for the revision where the server names none. Raises `InstallError` for
    an address that is not http or https.
    """

    def __init__(
        self,
        base: str,
        *,
        commit: str,
        token: str | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - immutable
        client: httpx.Client | None = None,
    ) -> None:
        address = parse_address(base)
        self._base = address.base
        self._pinned_commit = commit
        self._first_commit: str | None = None
        self._auth = httpx.BasicAuth(*address.credentials) if address.credentials else None
        self._token = None if self._auth else token
        self._policy = policy
        self._client = client or _new_client()
        self._metadata: dict[str, Metadata | None] = {}
        self._etags: dict[str, str] = {}
        self._interrupted = threading.Event()
        self._bodies: dict[int, httpx.Response] = {}

    @property
    def description(self) -> str:
        """The base address."""
        return self._base

    @property
    def identity(self) -> str:
        """The base address."""
        return self._base

    @property
    def commit(self) -> str | None:
        """The commit of all files, once the first was asked for."""
        return self._first_commit

    def interrupt(self) -> None:
        """End reads and their pauses; a body that stalls is cut off."""
        self._interrupted.set()
        for answer in list(self._bodies.values()):
            stream = answer.extensions.get("network_stream")
            connection = stream.get_extra_info("socket") if stream else None
            if connection is not None:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def size(self, name: str, *, ranged: bool = False) -> int | None:
        """Bytes of a file, None if the server has none (404).

        Raises `ProtocolError` if the file belongs to another revision than the first one asked
        for, or if `ranged` and the server does not offer byte ranges for it.
        """
        if name not in self._metadata:
            self._metadata[name] = self._retried(lambda: self._head(name))
        metadata = self._metadata[name]
        if metadata is None:
            return None
        if ranged and not metadata.ranges:
            raise ProtocolError(f"{self._base} does not offer byte ranges for {name}")
        return metadata.size

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        """As `Source.read`. A body that breaks off is continued at the byte where it broke."""
        cursor = _Cursor(offset, offset + length)
        while cursor.at < cursor.end:
            self._retried(lambda: self._fetch(name, cursor, size, sink))

    def _retried(self, request: Callable[[], T]) -> T:
        return with_retries(
            request,
            self._policy,
            sleep_ns=self._pause,
            jitter_ns=lambda: random.randrange(MAX_JITTER_NS),
            now=time.time,
        )

    def _pause(self, ns: int) -> None:
        if self._interrupted.wait(ns / 1e9):
            raise Interrupted

    def _head(self, name: str) -> Metadata | None:
        url, followed = file_url(self._base, name), 0
        while True:
            with self._send("HEAD", url, _IDENTITY, authorized=True) as answer:
                location = answer.headers.get("Location")
                if answer.status_code in REDIRECT_STATUSES and location:
                    hop = next_hop("metadata", url, location, followed)
                    if hop:
                        url, followed = hop[0], followed + 1
                        continue
                if answer.status_code == 404:
                    return None
                metadata = read_metadata(answer.status_code, answer.headers, self._pinned_commit)
            self._first_commit = self._first_commit or metadata.commit
            if metadata.commit != self._first_commit:
                raise ProtocolError(
                    f"{name} belongs to commit {metadata.commit}, the index to "
                    f"{self._first_commit}. The source changed: install again."
                )
            return metadata

    def _fetch(self, name: str, cursor: _Cursor, size: int, sink: Sink) -> None:
        """One request for what is left of a read. Raises unless it ended, or got on well."""
        start = cursor.at
        headers = {**_IDENTITY, "Range": f"bytes={start}-{cursor.end - 1}"}
        url, followed, authorized = file_url(self._base, name), 0, True
        known = self._metadata.get(name)
        while True:
            if self._interrupted.is_set():
                raise Interrupted
            with self._send("GET", url, headers, authorized=authorized) as answer:
                location = answer.headers.get("Location")
                if answer.status_code in REDIRECT_STATUSES and location:
                    hop = next_hop("payload", url, location, followed)
                    assert hop is not None
                    authorized = authorized and hop[1]
                    url, followed = hop[0], followed + 1
                    _keep_connection(answer)
                    continue
                xet_hash = known.xet_hash if known else None
                length = cursor.end - start
                check_range_response(
                    answer.status_code, answer.headers, start, length, size, xet_hash
                )
                self._check_unchanged(name, answer.headers.get("ETag"))
                with self._cut_off_by_interrupt(answer):
                    broken = _take_body(answer, cursor, sink, self._client.timeout.read)
            if cursor.at < cursor.end and cursor.at - start < _PROGRESS:
                if self._interrupted.is_set():
                    raise Interrupted
                raise BodyTruncated(
                    f"{shown(url)}: {cursor.at - start} of {length} bytes arrived{broken}. Check "
                    "the network, then try again."
                )
            return

    def _check_unchanged(self, name: str, etag: str | None) -> None:
        found = strong_etag(etag)
        if found and self._etags.setdefault(name, found) != found:
            raise RangeError(
                f"{self._base}: {name} changed while it was read (its ETag is another one). "
                "Try again later."
            )

    @contextmanager
    def _cut_off_by_interrupt(self, answer: httpx.Response) -> Iterator[None]:
        self._bodies[id(answer)] = answer
        try:
            if self._interrupted.is_set():
                raise Interrupted
            yield
        finally:
            del self._bodies[id(answer)]

    @contextmanager
    def _send(
        self, method: str, url: str, headers: dict[str, str], *, authorized: bool
    ) -> Iterator[httpx.Response]:
        if self._token and authorized:
            headers = {**headers, "Authorization": f"Bearer {self._token}"}
        auth = self._auth if authorized else None
        try:
            with self._client.stream(
                method, url, headers=headers, auth=auth, follow_redirects=False
            ) as answer:
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            reason = str(exc).rstrip(".") or type(exc).__name__
            raise Unreachable(
                f"{shown(url)} cannot be reached: {reason}. Check the address, the network and "
                "the proxy settings, then try again."
            ) from exc
        except HttpStatusError as exc:
            advice = self._advice(exc.status) if authorized else "Try again later."
            raise HttpStatusError(
                f"{shown(url)}: {exc}. {advice}", exc.status, exc.retry_after
            ) from None

    @property
    def _sends_credentials(self) -> bool:
        return self._token is not None or self._auth is not None

    def _advice(self, status: int) -> str:
        """What to do about a status with which the source's own host refuses."""
        if status in (401, 403):
            return "Write user:password@ before the host's name if it wants that (--source)."
        return "Try again later, or name another source (--source)."


def _new_client() -> httpx.Client:
    try:
        return httpx.Client(
            timeout=httpx.Timeout(STALL_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=None),
            limits=httpx.Limits(max_connections=MAX_CONNECTIONS),
        )
    except (ValueError, ImportError, OSError) as exc:  # what the environment's settings can cause
        raise InstallError(
            f"cannot connect with the proxy and certificate settings of the environment "
            f"(HTTPS_PROXY, SSL_CERT_FILE and the like): {exc}"
        ) from exc


def _keep_connection(answer: httpx.Response) -> None:
    """Read a short body that nobody needs, since the connection is lost otherwise."""
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and len(length) < 6:
        with suppress(httpx.TransportError):
            answer.read()


def _take_body(answer: httpx.Response, cursor: _Cursor, sink: Sink, patience: float | None) -> str:
    """Pass a body on; why it ended early, if it did. Raises `BodyExceeded`.

    The connection may be silent for `patience` seconds.
    """
    try:
        for data in _body(answer, cursor, patience):
            if cursor.at + len(data) > cursor.end:
                raise BodyExceeded("the server sent more than the bytes that were asked for")
            for i in range(0, len(data), BLOCK):
                sink(data[i : i + BLOCK])
            cursor.at += len(data)
    except (httpx.TransportError, httpcore.NetworkError, httpcore.TimeoutException) as exc:
        return f" ({exc or type(exc).__name__})"
    return ""


def _body(answer: httpx.Response, cursor: _Cursor, patience: float | None) -> Iterator[bytes]:
    """A body's bytes: the first through the client, the rest straight from its connection.

    The client hands on at most 64 KiB at a time, copies each three times, and with TLS has 16 KiB
    at a time; from a fast server its work would be the most of the install's. What it does not see
    it cannot count, so it closes the connection after this answer.
    """
    blocks = answer.iter_raw()
    stream = answer.extensions.get("network_stream")
    if stream is None or "Transfer-Encoding" in answer.headers:
        yield from blocks
        return
    yield next(blocks, b"")
    while cursor.at < cursor.end:
        data = stream.read(min(BLOCK, cursor.end - cursor.at), patience)
        if not data:
            return
        yield data
