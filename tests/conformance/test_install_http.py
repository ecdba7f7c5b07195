"""The HTTP rules against the conformance cases."""

import httpx
import pytest

from mference import errors
from mference.installer import http_rules as rules
from mference.installer.http_source import HttpSource
from mference.installer.source import read_range
from tests.conformance.install_labels import outcome
from tests.conformance.loader import Case, cases


@pytest.mark.parametrize("case", cases("install", "strong_etag"))
def test_strong_etag(case: Case):
    assert rules.strong_etag(case.given["value"]) == case.expect["normalized"]


@pytest.mark.parametrize("case", cases("install", "metadata_response"))
def test_metadata_response(case: Case):
    headers = dict(case.given["headers"])
    status = headers.pop("status")
    label, found = outcome(
        lambda: rules.read_metadata(status, headers, case.given["pinned_commit"])
    )
    assert label == case.expect.get("error")
    for key in ("size", "commit", "ranges"):
        if key in case.expect:
            assert getattr(found, key) == case.expect[key]


@pytest.mark.parametrize("case", cases("install", "redirect"))
def test_redirect(case: Case):
    given, expect = case.given, case.expect

    def follow() -> list[bool]:
        url, authorized, seen = given["origin"], given["authorization"], []
        for hop in given["hops"]:
            step = rules.next_hop(given["kind"], url, hop, len(seen), given["limit"])
            if step is None:
                break
            url, authorized = step[0], authorized and step[1]
            seen.append(authorized)
        return seen

    label, seen = outcome(follow)
    assert label == expect.get("error")
    if "followed" in expect:
        assert len(seen) == expect["followed"]
    if "authorization" in expect:
        assert seen == expect["authorization"]


FAILURES: dict[str, Exception] = {
    "timed out": errors.Unreachable(""),
    "offline": errors.Unreachable(""),
    "cannot connect": errors.Unreachable(""),
    "connection lost": errors.Unreachable(""),
    "DNS failure": errors.Unreachable(""),
    "resource unavailable": errors.Unreachable(""),
    "body shorter than announced": errors.BodyTruncated(""),
    "truncated body": errors.BodyTruncated(""),
    "redirect refused": errors.RedirectRejected(""),
    "wrong Content-Range": errors.RangeError(""),
}


def failure(given: str | int) -> Exception:
    return errors.HttpStatusError("", given) if isinstance(given, int) else FAILURES[given]


@pytest.mark.parametrize("case", cases("install", "retry_status"))
def test_retry_status(case: Case):
    given = case.given
    error = failure(given["status"] if "status" in given else given["failure"])
    assert rules.is_retryable(error) == case.expect["retry"]


@pytest.mark.parametrize("case", cases("install", "backoff"))
def test_backoff(case: Case):
    given = case.given
    policy = rules.RetryPolicy(
        given["policy"]["attempts"], given["policy"]["base"], given["policy"]["max"]
    )
    failures = iter(given["failures"])
    cancelled = "cancelled while sleeping" in given["failures"]
    sleeps: list[int] = []

    def request() -> str:
        pending = next(failures, None)
        if pending is None:
            return "success"
        raise failure(pending)

    def sleep(ns: int) -> None:
        if cancelled:
            raise KeyboardInterrupt
        sleeps.append(ns)

    try:
        result = rules.with_retries(
            request, policy, sleep_ns=sleep, jitter_ns=lambda: given["jitter_ns"], now=lambda: 0.0
        )
    except errors.HttpError:
        result = "error"
    except KeyboardInterrupt:
        result = "cancelled"
    assert (sleeps, result) == (case.expect["sleeps_ns"], case.expect["result"])


@pytest.mark.parametrize("case", cases("install", "retry_after"))
def test_retry_after(case: Case):
    given = case.given
    label, delay = outcome(
        lambda: rules.retry_delay_ns(
            given["header"], given["local_delay_ns"], given["cap_ns"], given["now_epoch"]
        )
    )
    assert label == case.expect.get("error")
    if label is None:
        assert delay == case.expect["delay_ns"]


@pytest.mark.parametrize("case", cases("install", "range_response"))
def test_range_response(case: Case):
    request, answer = case.given["request"], dict(case.given["response"])
    body = b"x" * answer.pop("body_bytes")
    status = answer.pop("status")

    def handle(http: httpx.Request) -> httpx.Response:
        if http.method == "HEAD":
            headers = {"Content-Length": str(request["total"]), "Accept-Ranges": "bytes"}
            if request["xet"]:
                headers["X-Xet-Hash"] = request["xet"]
            return httpx.Response(200, headers=headers)
        first, last = request["offset"], request["offset"] + request["length"] - 1
        assert http.headers["Range"] == f"bytes={first}-{last}"
        assert http.headers["Accept-Encoding"] == "identity"
        return httpx.Response(status, headers=answer, stream=httpx.ByteStream(body))

    client = httpx.Client(transport=httpx.MockTransport(handle))
    policy = rules.RetryPolicy(attempts=1)
    source = HttpSource("https://hub.test", commit="c" * 40, policy=policy, client=client)
    assert source.size("f", ranged=True) == request["total"]

    def act() -> int:
        return len(read_range(source, "f", request["offset"], request["length"], request["total"]))

    label, result = outcome(act)
    source.close()
    assert label == case.expect.get("error")
    if label is None and "written" in case.expect:
        assert result == case.expect["written"]
    if "retryable" in case.expect:
        assert rules.is_retryable(result) == case.expect["retryable"]
