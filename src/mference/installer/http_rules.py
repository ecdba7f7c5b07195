"""The HTTP rules of an install, as plain functions: ranges, metadata, redirects, retries."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, TypeVar
from urllib.parse import urljoin, urlsplit

from mference.errors import (
    BodyTruncated,
    HttpError,
    HttpStatusError,
    ProtocolError,
    RangeError,
    RedirectRejected,
    RetryDelayExceeded,
    Unreachable,
)
from mference.installer.address import shown

T = TypeVar("T")
Headers = Mapping[str, str]

SECOND_NS = 1_000_000_000
RETRYABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
MAX_REDIRECTS = 5
MAX_RETRY_AFTER_NS = 3600 * SECOND_NS
MAX_JITTER_NS = SECOND_NS // 4
_COMMIT = re.compile(r"[0-9a-fA-F]{40}")
_DEFAULT_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True)
class Metadata:
    """What a server says about a file: bytes, revision, whether parts can be read, validator."""

    size: int
    commit: str
    ranges: bool
    xet_hash: str | None


@dataclass(frozen=True)
class RetryPolicy:
    """How often a request is tried, and how long the pauses are, in nanoseconds."""

    attempts: int = 4
    base_ns: int = SECOND_NS
    max_ns: int = 16 * SECOND_NS
    cap_ns: int = MAX_RETRY_AFTER_NS

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.base_ns < 0 or self.max_ns < 0:
            raise ValueError("retry attempts and delays cannot be negative")

    def pause_ns(self, failures: int, jitter_ns: int) -> int:
        """The pause after the given number of failures: doubling from the base, no jitter at 0."""
        delay = min(self.base_ns << (failures - 1), self.max_ns)
        return delay + jitter_ns if delay else 0


def with_retries(
    request: Callable[[], T],
    policy: RetryPolicy,
    *,
    sleep_ns: Callable[[int], None],
    jitter_ns: Callable[[], int],
    now: Callable[[], float],
) -> T:
    """Carry out a request, again after a pause while its failure may be a passing one.

    Raises what the last attempt raised, `RetryDelayExceeded`, or `ProtocolError` for an unreadable
    `Retry-After`.
    """
    failures = 0
    while True:
        try:
            return request()
        except HttpError as exc:
            failures += 1
            if failures >= max(1, policy.attempts) or not is_retryable(exc):
                raise
            header = exc.retry_after if isinstance(exc, HttpStatusError) else None
            local = policy.pause_ns(failures, jitter_ns())
        if delay := retry_delay_ns(header, local, policy.cap_ns, now()):
            sleep_ns(delay)


def is_retryable(error: Exception) -> bool:
    """Whether a failure may pass: certain statuses, a truncated body, no connection."""
    if isinstance(error, HttpStatusError):
        return error.status in RETRYABLE_STATUSES
    return isinstance(error, BodyTruncated | Unreachable)


def retry_delay_ns(header: str | None, local_ns: int, cap_ns: int, now: float) -> int:
    """The pause in nanoseconds: the longer of our own and the server's `Retry-After`.

    `now` is seconds since the epoch, for the date forms. Raises `RetryDelayExceeded` above the cap
    and `ProtocolError` for a header that is neither seconds nor a date.
    """
    if header is None:
        return min(local_ns, cap_ns)
    value = header.strip()
    if re.fullmatch(r"[0-9]+", value):
        asked = int(value) * SECOND_NS if len(value) < 12 else cap_ns + 1
    else:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, IndexError, TypeError):
            raise ProtocolError(f"cannot read the header Retry-After: {header!r}") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        asked = (
            max(0, round((moment - datetime.fromtimestamp(now, UTC)).total_seconds())) * SECOND_NS
        )
    if asked > cap_ns:
        raise RetryDelayExceeded(
            f"the server asks to wait (Retry-After: {value}) longer than {cap_ns // SECOND_NS} s. "
            "Try again later."
        )
    return min(max(asked, local_ns), cap_ns)


def strong_etag(value: str | None) -> str | None:
    """A validator without quotes, in lower case; None for a weak or empty one."""
    text = (value or "").strip()
    if text.startswith(("W/", "w/")):
        return None
    return text.strip('"').lower() or None


def check_range_response(
    status: int, headers: Headers, offset: int, length: int, total: int, xet_hash: str | None
) -> None:
    """Check that an answer to `bytes=offset-(offset+length-1)` is exactly that range.

    `headers` compare names without case. Raises `HttpStatusError` unless the status is 206, and
    `RangeError` for any header that differs.
    """
    if status != 206:
        raise _status_error("a byte range", status, headers)
    encoding = headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise RangeError(f"the server compressed a byte range ({encoding})")
    if headers.get("Content-Length") != str(length):
        raise RangeError(
            f"{length} bytes were asked for, Content-Length is {headers.get('Content-Length')}"
        )
    wanted = f"bytes {offset}-{offset + length - 1}/{total}"
    if headers.get("Content-Range") != wanted:
        raise RangeError(f"Content-Range is {headers.get('Content-Range')!r}, not {wanted!r}")
    if xet_hash and strong_etag(headers.get("ETag")) != strong_etag(xet_hash):
        raise RangeError(f"the ETag {headers.get('ETag')!r} is not the file's hash {xet_hash}")


def read_metadata(status: int, headers: Headers, pinned_commit: str | None) -> Metadata:
    """Read the answer to a HEAD request, a redirect that was not followed included.

    Raises `HttpStatusError` outside 2xx and 3xx, `ProtocolError` without a commit or a size.
    """
    if not 200 <= status < 400:
        raise _status_error("metadata", status, headers)
    commit = headers.get("X-Repo-Commit") or pinned_commit
    if not commit or not _COMMIT.fullmatch(commit):
        raise ProtocolError(f"the server names no commit (X-Repo-Commit: {commit})")
    size = headers.get("X-Linked-Size")
    if size is None and status < 300:
        size = headers.get("Content-Length")
    if size is None or not re.fullmatch(r"[0-9]{1,18}", size):
        raise ProtocolError(f"the server does not say how large the file is ({size!r})")
    units = [unit.strip().lower() for unit in headers.get("Accept-Ranges", "").split(",")]
    return Metadata(int(size), commit, "bytes" in units, headers.get("X-Xet-Hash"))


def next_hop(
    kind: Literal["metadata", "payload"],
    url: str,
    location: str,
    followed: int,
    limit: int = MAX_REDIRECTS,
) -> tuple[str, bool] | None:
    """Where a redirect leads, and whether that is the same host.

    A payload redirect must lead to HTTPS. A metadata redirect is followed only to HTTPS on the
    same host: None means that the redirect itself is the answer. Raises `RedirectRejected`.
    """
    try:
        target = urljoin(url, location)
        same_host = _host(url) == _host(target)
    except ValueError:  # a port that is no number, half of an IPv6 address
        raise RedirectRejected(
            f"{shown(url)} redirects to what is no address: {shown(location)}. Name another source."
        ) from None
    secure = urlsplit(target).scheme == "https"
    if kind == "metadata":
        return (target, True) if same_host and secure and followed < limit else None
    if not secure:
        raise RedirectRejected(
            f"{shown(url)} redirects to plain HTTP: {shown(target)}. Name another source."
        )
    if followed >= limit:
        raise RedirectRejected(f"{shown(url)}: more than {limit} redirects. Name another source.")
    return target, same_host


def _host(url: str) -> tuple[str | None, int | None]:
    parts = urlsplit(url)
    return parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _status_error(what: str, status: int, headers: Headers) -> HttpStatusError:
    return HttpStatusError(
        f"the server answered a request for {what} with status {status}",
        status,
        headers.get("Retry-After"),
    )
