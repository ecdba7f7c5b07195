"""Installing from a hub: what is asked of which host, what is refused, and what users are told."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mference import errors
from mference.families import ENTRIES
from mference.installer import HubSource, install
from mference.installer.http_rules import RetryPolicy
from mference.installer.source import DEMO_CHECKPOINT
from mference.store import open_install
from tests.installer.command import mference, start_mference
from tests.installer.contents import contents
from tests.installer.hub import SIGNATURE, Hub, serve_hub
from tests.installer.server import serve

DEMO, GEMMA = ENTRIES["demo"], ENTRIES["gemma4"]
TOKEN = "hf_0123456789"


@pytest.fixture
def demo_hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that holds the demo's checkpoint under the demo's name."""
    (tmp_path / "hub").mkdir()
    with serve_hub(DEMO_CHECKPOINT, DEMO.repo, DEMO.revision, tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def gemma_hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that holds another checkpoint where Gemma should be."""
    (tmp_path / "hub").mkdir()
    with serve_hub(DEMO_CHECKPOINT, GEMMA.repo, GEMMA.revision, tmp_path / "hub") as hub:
        yield hub


def refusal(hub: Hub, cwd: Path, *arguments: str, code: int = 1, **extra: str) -> str:
    """What an install that must fail says, on its one line."""
    result = mference(
        "install", "--output", "x.gturbo", *arguments, cwd=cwd, **{**hub.environment, **extra}
    )
    assert (result.returncode, result.stdout) == (code, "")
    assert result.stderr.count("\n") == 1
    assert [p.name for p in cwd.glob("x.gturbo*")] in ([], ["x.gturbo.install.lock"])
    for secret in (TOKEN, SIGNATURE, "hunter2"):
        assert secret not in result.stderr
    return result.stderr


def test_a_pinned_model_comes_from_the_hub_and_the_token_stays_there(
    demo_hub: Hub, demo_install: Path, tmp_path: Path
):
    demo_hub.token = TOKEN
    result = mference(
        "install", "--model", "demo", "--base-url", demo_hub.endpoint, "--output", "x.gturbo",
        cwd=tmp_path, HF_TOKEN=TOKEN, **{**demo_hub.environment, "HF_ENDPOINT": "https://unused.invalid"},
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"Installed {tmp_path / 'x.gturbo'} (16.4 MB).\n"
    assert contents(tmp_path / "x.gturbo") == contents(demo_install)
    assert open_install(tmp_path / "x.gturbo").entry is DEMO
    asked, stored = demo_hub.at("hub"), demo_hub.at("store")
    assert {r.authorization for r in asked} == {f"Bearer {TOKEN}"}
    assert len(stored) >= 9
    assert {r.authorization for r in stored} == {None}


def test_a_model_without_a_source_comes_from_hf_endpoint(gemma_hub: Hub, tmp_path: Path):
    (tmp_path / "hub" / "token").write_text(TOKEN + "\n")  # where a login saves it
    gemma_hub.token = TOKEN
    result = mference(
        "install", "--model", "gemma4", "--allow-unpinned", "--output", "x.gturbo", "--json",
        cwd=tmp_path, **gemma_hub.environment,
    )  # fmt: skip
    assert result.returncode == 0
    report = json.loads(result.stdout)
    assert report["path"] == str(tmp_path / "x.gturbo")
    assert (report["model"], report["model_id"]) == (None, "unknown/snapshot")
    assert report["source"] == f"{gemma_hub.endpoint}/{GEMMA.repo} at revision 0d77464"
    assert report["bytes"] == DEMO.installed_bytes
    assert "nobody vouches" in result.stderr
    assert {r.authorization for r in gemma_hub.at("hub")} == {f"Bearer {TOKEN}"}
    assert {r.authorization for r in gemma_hub.at("store")} == {None}


def test_no_token_is_sent_when_implicit_tokens_are_off(gemma_hub: Hub, tmp_path: Path):
    refusal(gemma_hub, tmp_path, HF_TOKEN=TOKEN, HF_HUB_DISABLE_IMPLICIT_TOKEN="1")
    assert {r.authorization for r in gemma_hub.requests} == {None}


def test_another_checkpoint_behind_the_pinned_name_is_refused(gemma_hub: Hub, tmp_path: Path):
    said = refusal(gemma_hub, tmp_path)
    assert "is not the pinned source of 'gemma4'" in said
    assert GEMMA.index_sha256 in said
    assert gemma_hub.payload() == []


def test_another_commit_than_the_pinned_one_is_refused(gemma_hub: Hub, tmp_path: Path):
    gemma_hub.commit = "d" * 40
    said = refusal(gemma_hub, tmp_path, "--allow-unpinned")
    assert "d" * 40 in said
    assert GEMMA.revision in said
    assert len(gemma_hub.requests) == 2  # one HEAD, redirected


def test_a_gated_model_says_to_set_a_token_or_accept_the_licence(gemma_hub: Hub, tmp_path: Path):
    gemma_hub.token = TOKEN
    assert "Set HF_TOKEN to a token" in refusal(gemma_hub, tmp_path)
    assert "token was not accepted" in refusal(gemma_hub, tmp_path, HF_TOKEN="hf_other")
    gemma_hub.status = 403
    said = refusal(gemma_hub, tmp_path, HF_TOKEN=TOKEN)
    assert f"Accept its licence at {gemma_hub.endpoint}/{GEMMA.repo}" in said


def test_a_hub_without_the_model_is_named(gemma_hub: Hub, tmp_path: Path):
    gemma_hub.status = 404
    said = refusal(gemma_hub, tmp_path)
    assert f"{gemma_hub.endpoint} has no {GEMMA.repo} at revision {GEMMA.revision}" in said
    assert "HF_ENDPOINT" in said


def test_offline_mode_asks_for_nothing(gemma_hub: Hub, tmp_path: Path):
    assert "HF_HUB_OFFLINE is set" in refusal(gemma_hub, tmp_path, HF_HUB_OFFLINE="1")
    assert gemma_hub.requests == []


@pytest.mark.parametrize(
    ("arguments", "extra", "says"),
    [
        ((), {"HF_ENDPOINT": "me:hunter2@mirror"}, "HF_ENDPOINT 'mirror' is no http"),
        ((), {"HF_TOKEN": "hünter2"}, "token has characters that no token has"),
        ((), {"HTTPS_PROXY": "wrong://me:hunter2@h", "NO_PROXY": ""}, "proxy and certificate"),
        ((), {"SSL_CERT_FILE": "none.pem"}, "proxy and certificate"),
        (("--source", "https://me:hunter2@h:x/m"), {}, "no http or https address"),
        (("--source", "https://h/m?token=hunter2"), {}, "no http or https address"),
        (("--source", "http:/me:hunter2@h/m"), {}, "no http or https address"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used_are_named(gemma_hub, tmp_path, arguments, extra, says):
    assert says in refusal(gemma_hub, tmp_path, *arguments, **extra)
    assert gemma_hub.requests == []


def test_a_certificate_that_nobody_vouches_for_is_refused(gemma_hub: Hub, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    source = HubSource(
        GEMMA.repo, GEMMA.revision, base_url=gemma_hub.endpoint, policy=RetryPolicy(attempts=1)
    )
    with pytest.raises(errors.Unreachable, match=r"certificate.*Check the address"):
        source.size("config.json")
    source.close()


def test_a_host_that_is_unknown_and_one_that_refuses_are_named(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    waiting = [
        start_mference("install", "--output", "x.gturbo", *where, cwd=tmp_path / name, **extra)
        for name, where, extra in (
            ("a", (), {"HF_ENDPOINT": "https://me:hunter2@nowhere.invalid"}),
            ("b", ("--source", "http://me:hunter2@127.0.0.1:1/m"), {}),
        )
    ]
    for process, says in zip(waiting, ("nowhere.invalid/", "127.0.0.1:1/m/"), strict=True):
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert said.count("\n") == 1
        assert says in said
        assert "cannot be reached" in said
        assert "hunter2" not in said


def test_a_password_in_an_address_is_used_and_never_shown(tmp_path: Path):
    with serve(DEMO_CHECKPOINT) as server:
        server.password = ("me", "hunter2")
        address = server.base.replace("http://", "http://me:hunter2@")
        arguments = ("install", "--model", "demo", "--output", "x.gturbo", "--json", "--source")
        done = mference(*arguments, address, cwd=tmp_path)
        wrong = mference(*arguments, address + "wrong", "--overwrite", cwd=tmp_path)
        refused = mference(*arguments, server.base, "--overwrite", cwd=tmp_path)
    assert (done.returncode, refused.returncode) == (0, 1)
    assert "status 401. Write user:password@" in refused.stderr
    for result in (done, wrong, refused):
        assert "hunter2" not in result.stdout + result.stderr


def test_a_repository_id_that_cannot_be_one_is_refused():
    with pytest.raises(errors.InstallError, match="no repository id"):
        HubSource("../x", GEMMA.revision)


def test_a_source_and_a_hub_are_one_too_many(tmp_path: Path):
    with pytest.raises(errors.InstallError, match="not both"):
        install(DEMO_CHECKPOINT, tmp_path / "x.gturbo", base_url="https://h")
