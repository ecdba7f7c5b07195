"""The HTTP source against servers that redirect, lie, vanish or belong to someone else."""

from pathlib import Path

import httpx
import pytest

from mference import errors
from mference.installer.http_rules import RetryPolicy, next_hop
from mference.installer.http_source import HttpSource
from mference.installer.source import read_small
from tests.installer.server import serve

COMMIT = "c" * 40


def source_of(handle, attempts: int = 1, token: str | None = None) -> HttpSource:
    client = httpx.Client(transport=httpx.MockTransport(handle))
    policy = RetryPolicy(attempts=attempts, base_ns=0)
    return HttpSource(
        "https://hub.test/m", commit=COMMIT, policy=policy, client=client, token=token
    )


def answer(request: httpx.Request, data: bytes = b"hello") -> httpx.Response:
    if request.method == "HEAD":
        return httpx.Response(200, headers={"Content-Length": str(len(data))})
    first, last = map(int, request.headers["Range"].removeprefix("bytes=").split("-"))
    headers = {
        "Content-Length": str(last - first + 1),
        "Content-Range": f"bytes {first}-{last}/{len(data)}",
    }
    return httpx.Response(206, headers=headers, stream=httpx.ByteStream(data[first : last + 1]))


@pytest.mark.parametrize("base", ["ftp://x", "http://", "http://[", "http://h:x", "http://h:99999"])
def test_an_address_that_cannot_be_one_is_refused(base):
    with pytest.raises(errors.InstallError, match="no http or https address"):
        HttpSource(base, commit=COMMIT)


def test_the_token_goes_to_its_own_host_only():
    seen = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("Authorization")))
        if request.method == "GET" and request.url.host == "hub.test":
            return httpx.Response(302, headers={"Location": "https://store.test/x"})
        if request.url.path == "/x":
            return httpx.Response(302, headers={"Location": "https://hub.test/back"})
        return answer(request)

    def back(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/back":
            seen.append((request.url.host, request.headers.get("Authorization")))
            return answer(request)
        return handle(request)

    source = source_of(back, token="secret")
    assert read_small(source, "f", 10) == b"hello"
    source.close()
    assert seen == [
        ("hub.test", "Bearer secret"),
        ("hub.test", "Bearer secret"),
        ("store.test", None),
        ("hub.test", None),
    ]


def test_a_redirect_to_plain_http_is_refused():
    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "HEAD":
            return answer(request)
        return httpx.Response(302, headers={"Location": "http://store.test/x"})

    source = source_of(handle)
    with pytest.raises(errors.RedirectRejected, match="plain HTTP"):
        read_small(source, "f", 10)
    source.close()


@pytest.mark.parametrize("kind", ["metadata", "payload"])
@pytest.mark.parametrize("location", ["https://[/x", "//[", "https://h:x/", "https://h:99999/"])
def test_a_redirect_to_what_is_no_address_is_refused(kind, location):
    with pytest.raises(errors.RedirectRejected, match="no address"):
        next_hop(kind, "https://hub.test/m/f", location, 0)


def test_a_body_longer_than_asked_for_is_refused_without_growing_the_file():
    def handle(request: httpx.Request) -> httpx.Response:
        right = answer(request)
        if request.method == "HEAD":
            return right
        return httpx.Response(
            206, headers=right.headers, stream=httpx.ByteStream(b"hello and more")
        )

    source = source_of(handle)
    with pytest.raises(errors.BodyExceeded):
        read_small(source, "f", 10)
    source.close()


def test_a_server_error_is_named_with_its_status_and_address():
    source = source_of(lambda _: httpx.Response(503))
    with pytest.raises(errors.HttpStatusError, match=r"hub\.test/m/f.*503") as caught:
        source.size("f")
    source.close()
    assert caught.value.status == 503


def test_a_server_that_asks_for_hours_of_patience_is_given_up_on():
    source = source_of(lambda _: httpx.Response(503, headers={"Retry-After": "3601"}), attempts=2)
    with pytest.raises(errors.RetryDelayExceeded):
        source.size("f")
    source.close()


def test_an_unreachable_server_is_named_after_the_last_attempt():
    calls = []

    def handle(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        raise httpx.ConnectError("refused")

    source = source_of(handle, attempts=3)
    with pytest.raises(errors.Unreachable, match="refused"):
        source.size("f")
    source.close()
    assert len(calls) == 3


def test_a_file_over_its_cap_is_refused_before_it_is_downloaded():
    source = source_of(answer)
    with pytest.raises(errors.CheckpointError) as caught:
        read_small(source, "f", 4)
    source.close()
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize("base", ["ftp://x/y", "https://", "folder"])
def test_only_http_addresses_are_sources(base: str):
    with pytest.raises(errors.InstallError):
        HttpSource(base, commit=COMMIT)


def test_a_body_cut_short_is_fetched_again(tmp_path: Path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served/f").write_bytes(b"x" * 10_000)
    with serve(tmp_path / "served") as server:
        server.failures = ["truncated body"]
        source = server.source()
        assert read_small(source, "f", 10_000) == b"x" * 10_000
        assert read_small(source, "none", 10_000) is None
        source.close()
    assert [r for r in server.requests if r[1] == "f"] == [
        ("HEAD", "f"),
        ("GET", "f"),
        ("GET", "f"),
    ]
