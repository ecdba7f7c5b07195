"""`mference verify` as a user runs it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND


@pytest.fixture
def damaged(demo_install: Path, tmp_path: Path) -> Path:
    """An install with a changed, a cut and a missing file."""
    install = Path(shutil.copytree(demo_install, tmp_path / "d.gturbo"))
    with (install / "packed_experts/layer_01.bin").open("r+b") as file:
        file.write(b"\xff\x00\xff")
    (install / "packed_experts/layer_02.bin").write_bytes(b"cut")
    (install / "tokenizer/config.json").unlink()
    return install


def test_all_damaged_files_are_named_with_the_command_that_repairs(mference_process, damaged):
    result = mference_process("verify", damaged.name)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "mference: d.gturbo is damaged in 3 of its 12 files: packed_experts/layer_01.bin has "
        "another SHA-256 than the manifest says; packed_experts/layer_02.bin has 3 bytes, the "
        "manifest says 2097152; tokenizer/config.json is missing. To fetch these again: mference "
        "install --repair --output d.gturbo\n"
    )


def test_damage_is_data_on_request(mference_process, damaged):
    result = mference_process("verify", damaged.name, "--json")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["path"] == "d.gturbo"
    assert [(f["name"], f["problem"]) for f in report["damaged"]] == [
        ("packed_experts/layer_01.bin", "hash"),
        ("packed_experts/layer_02.bin", "size"),
        ("tokenizer/config.json", "missing"),
    ]
    assert result.stderr.startswith("mference: d.gturbo is damaged")


@pytest.fixture
def intact(demo_install: Path, tmp_path: Path) -> Path:
    """A copy of the demo install, since verifying one renews its receipt."""
    return Path(shutil.copytree(demo_install, tmp_path / "intact.gturbo"))


def test_an_intact_install_has_no_damage_in_its_data(mference_command, intact):
    report = json.loads(mference_command("verify", intact, "--json").stdout)
    assert (report["damaged"], report["files"]) == ([], 12)


def test_a_terminal_sees_which_file_is_hashed_and_a_pipe_does_not(
    terminal, intact, mference_process
):
    shown = terminal(*COMMAND, "verify", intact, TERM="xterm")
    shown.expect("verify")
    shown.expect(".json")  # the last file by name, which the bar ends with
    shown.expect("all 12 files are as the manifest says")
    assert shown.end() == 0
    assert mference_process("verify", intact).stderr == ""


def test_json_stays_on_stdout_while_a_bar_is_shown(terminal, damaged, tmp_path):
    line = 'exec "$@" > report.json'
    shown = terminal("sh", "-c", f"cd {tmp_path}; {line}", "sh", *COMMAND, "verify", damaged.name,
                     "--json", TERM="xterm")  # fmt: skip
    shown.expect("mference: d.gturbo is damaged in 3 of its 12 files")
    assert shown.end() == 1
    assert len(json.loads((tmp_path / "report.json").read_text())["damaged"]) == 3
