"""Paths, names, ranges, digests and disk need against the conformance cases."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mference import errors
from mference.installer import Limits
from mference.installer import http_rules as rules
from mference.installer.hub_source import hub_base
from mference.installer.paths import (
    check_remote_name,
    check_repo_id,
    file_url,
    is_inside,
    sibling_paths,
)
from mference.installer.plan import (
    Copy,
    RangePlan,
    check_destinations,
    digest_headers,
    plan_ranges,
)
from mference.installer.space import check_space, required_space
from mference.installer.transforms import IDENTITY, UNPACK_2_TO_4, Transform, repeat_bf16
from tests.conformance.install_labels import accepted, outcome
from tests.conformance.loader import Case, cases


def transform(given: Any) -> Transform:
    if given in (None, "identity"):
        return IDENTITY
    if given == "unpack2to4":
        return UNPACK_2_TO_4
    return repeat_bf16(given["repeat"], negate=given["negate"])


def copies(given: dict) -> list[Copy]:
    return [
        Copy(c["shard"], c["src"], c["size"], c["file"], c["dst"], transform(c.get("transform")))
        for c in given["copies"]
    ]


@pytest.mark.parametrize("case", cases("install", "coalesce"))
def test_coalesce(case: Case):
    label, ranges = outcome(lambda: plan_ranges(copies(case.given), case.given["chunk"]))
    assert label == case.expect.get("error")
    if label is None:
        found = [
            {
                "id": r.id,
                "shard": r.shard,
                "src": r.offset,
                "size": r.size,
                "parts": [
                    {
                        "file": p.path,
                        "src": p.source_offset,
                        "dst": p.destination_offset,
                        "size": p.size,
                    }
                    for p in r.parts
                ],
            }
            for r in ranges
        ]
        assert found == case.expect["ranges"]


@pytest.mark.parametrize("case", cases("install", "destinations"))
def test_destinations(case: Case):
    assert accepted(lambda: check_destinations(copies(case.given))) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "inside_root"))
def test_inside_root(case: Case):
    assert is_inside(case.given["root"], case.given["path"]) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "fingerprint"))
def test_fingerprint(case: Case):
    given = case.given
    ranges = plan_ranges(copies(given), given["chunk"])
    plan = RangePlan(given["chunk"], ranges, dict(given["outputs"]), given["resident_index_sha256"])
    assert plan.fingerprint() == case.expect["sha256"]


@pytest.mark.parametrize("case", cases("install", "range_digest"))
def test_range_digest(case: Case):
    files = {name: bytes.fromhex(text) for name, text in case.given["files"].items()}
    (r,) = plan_ranges(copies(case.given), case.given["chunk"])
    digest = sha256()
    for header, part in zip(digest_headers(r), r.parts, strict=True):
        digest.update(header)
        digest.update(files[part.path][part.destination_offset : part.destination_end])
    assert (r.id, digest.hexdigest()) == (case.expect["id"], case.expect["sha256"])


@pytest.mark.parametrize("case", cases("install", "transform"))
def test_transform(case: Case):
    chosen = transform(case.given["transform"])
    assert chosen.apply(bytes.fromhex(case.given["source"])).hex() == case.expect["output"]


@pytest.mark.parametrize("case", cases("install", "scratch"))
def test_scratch(case: Case):
    chosen = transform(case.given["transform"])
    assert accepted(lambda: chosen.tile(case.given["scratch"])) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "option_bounds"))
def test_option_bounds(case: Case):
    given = case.given

    def act() -> None:
        if "retry_attempts" in given:
            rules.RetryPolicy(attempts=given["retry_attempts"])
        names = {"write_tile": "scratch", "range_chunk": "chunk"}
        Limits(**{names[key]: value for key, value in given.items() if key in names})

    try:
        act()
        ok = True
    except (ValueError, errors.InstallError):
        ok = False
    assert ok == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "disk"))
def test_disk(case: Case):
    given = case.given
    label, required = outcome(
        lambda: required_space(
            given.get("output", given.get("bytes")),
            given.get("reused_destination", 0),
            given.get("chunk", 0),
            given["reserve"],
        )
    )
    assert label == case.expect.get("error")
    if "required" in case.expect:
        assert required == case.expect["required"]
    if "ok" in case.expect:
        available = given["available"]
        assert max(0, required - available) == case.expect["shortfall"]
        try:
            check_space(required, available, Path())
            ok = True
        except errors.NoSpace:
            ok = False
        assert ok == case.expect["ok"]


@pytest.mark.parametrize("case", cases("install", "paths"))
def test_paths(case: Case):
    paths = sibling_paths(case.given["output"])
    for name, value in case.expect.items():
        assert str(getattr(paths, name)) == value


@pytest.mark.parametrize("case", cases("install", "repo_id"))
def test_repo_id(case: Case):
    assert accepted(lambda: check_repo_id(case.given["repo"])) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "remote_name"))
def test_remote_name(case: Case):
    assert accepted(lambda: check_remote_name(case.given["name"])) == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("install", "url"))
def test_url(case: Case):
    given = case.given
    base = hub_base(given["base"], given["repo"], given["requested"], given["commit"])
    assert file_url(base, given["file"]) == case.expect["url"]
