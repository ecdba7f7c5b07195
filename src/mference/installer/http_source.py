"""A checkpoint behind HTTP: metadata by HEAD, bytes by exact range requests."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx

from mference.errors import (
    BodyExceeded,
    BodyTruncated,
    HttpStatusError,
    InstallError,
    ProtocolError,
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
    with_retries,
)
from mference.installer.paths import file_url

T = TypeVar("T")
REQUEST_TIMEOUT_S = 300.0
_IDENTITY = {"Accept-Encoding": "identity"}


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

    def close(self) -> None:
        """Close the connection."""
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

    @contextmanager
    def open_range(
        self, name: str, offset: int, length: int, size: int, staging: Path
    ) -> Iterator[tuple[int, int]]:
        """Download a range into `staging` and open it there; the file is removed afterwards."""
        self._retried(lambda: self._download(name, offset, length, size, staging))
        try:
            descriptor = os.open(staging, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                yield descriptor, 0
            finally:
                os.close(descriptor)
        finally:
            staging.unlink(missing_ok=True)

    def _retried(self, request: Callable[[], T]) -> T:
        return with_retries(
            request,
            self._policy,
            sleep_ns=lambda ns: time.sleep(ns / 1e9),
            jitter_ns=lambda: random.randrange(MAX_JITTER_NS),
            now=time.time,
        )

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

    def _download(self, name: str, offset: int, length: int, size: int, staging: Path) -> None:
        headers = {**_IDENTITY, "Range": f"bytes={offset}-{offset + length - 1}"}
        url, followed, authorized = file_url(self._base, name), 0, True
        known = self._metadata.get(name)
        while True:
            with self._send("GET", url, headers, authorized=authorized) as answer:
                location = answer.headers.get("Location")
                if answer.status_code in REDIRECT_STATUSES and location:
                    hop = next_hop("payload", url, location, followed)
                    assert hop is not None
                    authorized = authorized and hop[1]
                    url, followed = hop[0], followed + 1
                    continue
                xet_hash = known.xet_hash if known else None
                check_range_response(
                    answer.status_code, answer.headers, offset, length, size, xet_hash
                )
                _store_body(answer, staging, length)
                return

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
            reason = str(exc) or type(exc).__name__
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
        limits = httpx.Limits(max_connections=1)
        return httpx.Client(timeout=REQUEST_TIMEOUT_S, limits=limits)
    except (ValueError, ImportError, OSError) as exc:  # what the environment's settings can cause
        raise InstallError(
            f"cannot connect with the proxy and certificate settings of the environment "
            f"(HTTPS_PROXY, SSL_CERT_FILE and the like): {exc}"
        ) from exc


def _store_body(answer: httpx.Response, staging: Path, length: int) -> None:
    """Write a body of exactly `length` bytes to a new file; the file is removed on failure."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    received = 0
    with os.fdopen(os.open(staging, flags, 0o600), "wb") as file:
        try:
            for block in answer.iter_raw():
                received += len(block)
                if received > length:
                    raise BodyExceeded(f"more than the {length} bytes asked for arrived")
                file.write(block)
            file.flush()
            if received < length:
                raise BodyTruncated(f"{received} of {length} bytes arrived")
        except httpx.RemoteProtocolError as exc:
            staging.unlink(missing_ok=True)
            raise BodyTruncated(f"{received} of {length} bytes arrived: {exc}") from exc
        except BaseException:
            staging.unlink(missing_ok=True)
            raise
