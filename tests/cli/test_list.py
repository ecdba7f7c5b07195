"""`mference list` as a user runs it."""

import json
import shutil
from pathlib import Path

import pytest

from mference.installer.lock import InstallLock
from tests.cli.conftest import COMMAND
from tests.installer.leftovers import interrupt_install
from tests.store.toys import write_toy


@pytest.fixture
def home(cli_environment, tmp_path, monkeypatch):
    """The place that MFERENCE_HOME names; it does not exist yet."""
    place = tmp_path / "models"
    monkeypatch.setitem(cli_environment, "MFERENCE_HOME", str(place))
    return place


def test_an_empty_machine_is_told_how_to_install(mference_process, home):
    result = mference_process("list")
    assert (result.returncode, result.stdout) == (0, "")
    command = f"mference install --model demo --output {home}/demo.gturbo"
    assert result.stderr == f"There is no install in {home}. To make one: {command}\n"
    assert mference_process("list", "--json").stdout == "[]\n"
    home.mkdir()
    assert mference_process("list").stderr == result.stderr
    assert mference_process(*command.split()[1:]).returncode == 0
    assert mference_process("list").stdout.count("demo.gturbo") == 1


def test_installs_in_every_state_are_listed(mference_process, home, demo_install):
    shutil.copytree(demo_install, home / "whole.gturbo")
    interrupt_install(home / "begun.gturbo")
    broken = write_toy(home / "broken.gturbo")
    (broken / "manifest.json").write_text("{")
    write_toy(home / "toy.gturbo")
    with InstallLock(home / "toy.gturbo.install.lock"):
        result = mference_process("list")
        listed = json.loads(mference_process("list", "--json").stdout)
    assert result.returncode == 0
    heading, *rows = result.stdout.splitlines()
    assert heading.split() == ["model", "size", "state", "verified", "path"]
    begun, damaged, toy, whole = (" ".join(row.split()) for row in rows)
    assert begun.startswith("demo ")
    assert " unfinished, 7.8 MB of 13.3 MB copied no " in begun
    assert damaged.startswith("unknown ")
    assert f" damaged no {broken}" in damaged
    assert " complete, in use by an install " in toy
    assert toy.startswith("unknown/snapshot ")
    assert whole.startswith("demo ")
    assert whole.endswith(f" complete no {home}/whole.gturbo")  # a copy was not verified there
    assert result.stderr.startswith(f"{broken}: manifest.json is not valid JSON")
    assert result.stderr.count("\n") == 1
    assert [(one["path"], one["state"], one["running"]) for one in listed] == [
        (f"{home}/begun.gturbo", "unfinished", False),
        (f"{home}/broken.gturbo", "damaged", False),
        (f"{home}/toy.gturbo", "complete", True),
        (f"{home}/whole.gturbo", "complete", False),
    ]
    assert set(listed[0]) == {
        "path", "state", "size", "model", "pinned", "verified", "copied", "total", "running",
        "problem",
    }  # fmt: skip


def test_named_directories_are_listed_beside_the_default_place_and_once(
    mference_command, home, tmp_path
):
    write_toy(home / "a.gturbo")
    other = write_toy(tmp_path / "other" / "b.gturbo")
    listed = json.loads(
        mference_command("list", "models", "other", other, home / "a.gturbo", "--json").stdout
    )
    assert [Path(one["path"]).name for one in listed] == ["a.gturbo", "b.gturbo"]


def test_a_named_directory_that_is_not_there_is_an_error(mference_command, home):
    write_toy(home / "a.gturbo")
    result = mference_command("list", "nowhere")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "mference: cannot list nowhere: No such file or directory\n"


def test_a_user_without_a_home_can_still_name_a_directory(
    mference_command, tmp_path, monkeypatch, cli_environment
):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("MFERENCE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delitem(cli_environment, name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    write_toy(tmp_path / "a.gturbo")
    result = mference_command("list")
    assert result.returncode == 1
    assert "MFERENCE_HOME" in result.stderr
    assert "a.gturbo" in mference_command("list", ".").stdout


def test_what_files_say_cannot_move_the_cursor(mference_command, home):
    root = write_toy(home / "[red]a.gturbo")
    for name, key in (("manifest.json", "modelID"), ("verified-install.json", "directory")):
        document = json.loads((root / name).read_bytes())
        (root / name).write_text(json.dumps({**document, key: "\x1b[2J evil"}))
    shown = mference_command("list").stdout
    assert "\x1b" not in shown
    assert "\\x1b[2J evil" in shown
    assert "[red]a.gturbo" in shown


def test_the_table_fits_into_a_narrow_terminal(terminal, home):
    write_toy(home / ("long" * 20) / "a.gturbo")
    shown = terminal(
        *COMMAND, "list", home / ("long" * 20), MFERENCE_HOME=str(home), COLUMNS="72", TERM="xterm"
    )
    shown.expect("complete")
    assert shown.end() == 0
    assert max(map(len, shown.shown.replace("\r", "").splitlines())) <= 72
