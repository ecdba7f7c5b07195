"""`mference install` and `mference families` as a user runs them."""

import json
import os
import pty
import shutil
import subprocess

import pytest

from mference.families import ENTRIES
from tests.cli.conftest import COMMAND


def test_a_dry_run_tells_the_sizes_and_leaves_nothing(mference_command, tmp_path):
    arguments = ("install", "--model", "demo", "--output", "new/o.gturbo", "--dry-run")
    shown = mference_command(*arguments)
    assert (shown.returncode, shown.stderr) == (0, "")
    copied, installed, disk = shown.stdout.splitlines()
    assert copied.startswith("to copy      13.6 MB from ")
    assert installed == f"to install   16.4 MB in {tmp_path / 'new' / 'o.gturbo'}"
    assert disk.startswith("disk space   ")
    plan = json.loads(mference_command(*arguments, "--json").stdout)
    assert plan["installed"] == ENTRIES["demo"].installed_bytes
    assert plan["model"] == "demo"
    assert set(plan) == {
        "path", "model", "model_id", "source", "download", "installed", "required", "free",
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_the_report_is_json_on_request_and_one_line_otherwise(mference_command, tmp_path):
    plain = mference_command("install", "--model", "demo", "--output", "a.gturbo")
    assert (plain.returncode, plain.stdout) == (0, "")
    assert plain.stderr == f"Installed {tmp_path / 'a.gturbo'} (16.4 MB).\n"
    machine = mference_command("install", "--model", "demo", "--output", "b.gturbo", "--json")
    assert (machine.returncode, machine.stderr) == (0, "")
    report = json.loads(machine.stdout)
    assert (report["path"], report["model"]) == (str(tmp_path / "b.gturbo"), "demo")
    assert (report["files"], report["reused"]) == (12, 0)


def test_a_directory_that_is_read_only_is_named(cli_environment, tmp_path):
    (tmp_path / "fixed").mkdir(mode=0o555)
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root writes anywhere unless it gives that up
        setpriv = shutil.which("setpriv")
        if not setpriv:
            pytest.skip("as root this needs setpriv")
        prefix = (setpriv, "--bounding-set=-dac_override", "--inh-caps=-all")
    result = subprocess.run(
        [*prefix, *COMMAND, "install", "--model", "demo", "--output", "fixed/o.gturbo"],
        cwd=tmp_path, env=cli_environment, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert f"cannot write to {tmp_path / 'fixed'}: Permission denied" in result.stderr
    assert "Choose an output" in result.stderr
    assert result.stderr.count("\n") == 1


def test_families_lists_every_pinned_model(mference_command):
    result = mference_command("families")
    assert (result.returncode, result.stderr) == (0, "")
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == ["name", "download", "installed", "runs", "source"]
    assert [row.split()[0] for row in rows] == list(ENTRIES)
    gemma, demo, qwen, *others = rows
    assert gemma.split(maxsplit=5)[1:] == [
        "14.23", "GB", "14.29", "GB", "yes  mlx-community/gemma-4-26b-a4b-it-4bit @ 0d77464",
    ]  # fmt: skip
    assert demo.split() == ["demo", "none", "16.4", "MB", "yes", "in", "the", "package"]
    assert " yes " in qwen
    assert all(" no " in row for row in others)
    assert not any(line.endswith(" ") for line in result.stdout.splitlines())


def test_families_as_json_gives_every_detail(mference_command):
    listed = json.loads(mference_command("families", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(ENTRIES)
    gemma = listed[0]
    assert gemma["revision"] == ENTRIES["gemma4"].revision
    assert gemma["index_sha256"] == ENTRIES["gemma4"].index_sha256
    assert (gemma["runs"], gemma["embedded"]) == (True, False)
    assert gemma["installed_bytes"] == 14_291_921_884
    qwen38 = next(entry for entry in listed if entry["name"] == "qwen38")
    assert qwen38["download_bytes"] is None
    assert qwen38["runs"] is False


def shown_on_terminal(stream, arguments, environment, place):
    """What the command writes to `stdout` or `stderr`, if that is a terminal."""
    master, slave = pty.openpty()
    try:
        subprocess.run(
            [*COMMAND, *arguments], cwd=place, env=environment, timeout=60, check=True,
            **{stream: slave},
        )  # fmt: skip
        return os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)


def test_families_fit_into_a_narrow_terminal(cli_environment, tmp_path):
    environment = {**cli_environment, "COLUMNS": "80", "TERM": "dumb"}
    shown = shown_on_terminal("stdout", ["families"], environment, tmp_path)
    lines = shown.replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    for entry in ENTRIES.values():
        assert entry.embedded or entry.repo in shown


def test_an_install_in_a_terminal_shows_progress(cli_environment, tmp_path):
    arguments = ["install", "--model", "demo", "--output", "o.gturbo"]
    environment = {**cli_environment, "TERM": "xterm"}
    shown = shown_on_terminal("stderr", arguments, environment, tmp_path)
    assert "copy" in shown
    assert "verify" in shown
    assert "Installed " in shown
