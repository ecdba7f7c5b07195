"""`mference remove` as a user runs it: the question, the refusals, what is left."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mference.installer.lock import InstallLock
from tests.cli.conftest import COMMAND
from tests.installer.leftovers import interrupt_install
from tests.store.toys import write_toy


@pytest.fixture
def toy(tmp_path):
    return write_toy(tmp_path / "toy.gturbo")


def test_the_question_names_the_install_and_yes_removes_it(terminal, demo_install, tmp_path):
    install = Path(shutil.copytree(demo_install, tmp_path / "d.gturbo"))
    (install / "notes.txt").write_text("mine")
    asked = terminal(*COMMAND, "remove", install)
    asked.expect(f"{install} (demo, 1")
    asked.expect(" MB): complete.")
    asked.expect("It also has what is no part of an install: notes.txt.")
    asked.expect("Remove it? [y/N] ")
    asked.type("y\n")
    asked.expect(f"Removed {install} (1")
    assert asked.end() == 0
    assert not list(tmp_path.glob("d.gturbo*"))


@pytest.mark.parametrize("answer", ["n\n", "\n", "yellow\n", "\x04"])
def test_anything_but_yes_removes_nothing(terminal, toy, answer):
    asked = terminal(*COMMAND, "remove", toy)
    asked.expect("Remove it? [y/N] ")
    asked.type(answer)
    asked.expect("Nothing was removed.")
    assert asked.end() == 1
    assert (toy / "manifest.json").exists()


def test_ctrl_c_at_the_question_removes_nothing(terminal, toy):
    asked = terminal(*COMMAND, "remove", toy)
    asked.expect("Remove it? [y/N] ")
    asked.type("\x03")
    asked.expect("mference: interrupted")
    assert asked.end() == 130
    assert (toy / "manifest.json").exists()


def test_without_a_terminal_it_takes_yes(mference_process, toy, tmp_path):
    refused = mference_process("remove", "toy.gturbo", stdin="y\n")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("mference: there is no terminal to ask whether to remove ")
    assert f"{toy} (unknown/snapshot, " in refused.stderr
    assert refused.stderr.endswith("): give --yes\n")
    assert (toy / "manifest.json").exists()
    removed = mference_process("remove", "toy.gturbo", "--yes")
    assert (removed.returncode, removed.stdout) == (0, "")
    assert removed.stderr.startswith(f"Removed {toy} (")
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_nobody_sees_is_not_asked(terminal, toy, tmp_path):
    line = f'exec "$@" 2> {tmp_path}/errors.txt'
    started = terminal("sh", "-c", line, "sh", *COMMAND, "remove", toy)
    assert started.end() == 2
    assert "give --yes" in (tmp_path / "errors.txt").read_text()


def test_an_unfinished_install_is_asked_about_with_what_is_copied(terminal, tmp_path):
    interrupt_install(tmp_path / "d.gturbo")
    asked = terminal(*COMMAND, "remove", tmp_path / "d.gturbo")
    asked.expect("unfinished, ")
    asked.expect(" of 13.3 MB copied.")
    asked.type("yes\n")
    asked.expect("Removed ")
    assert asked.end() == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_removed_is_one_clear_message(mference_process, toy, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("")
    (tmp_path / "link.gturbo").symlink_to(toy)
    with InstallLock(tmp_path / "toy.gturbo.install.lock"):
        for name, says in (
            ("mine", "is no install"),
            ("link.gturbo", "is a symlink"),
            ("nowhere", "there is no install at"),
            ("toy.gturbo", "another install is writing toy.gturbo"),
        ):
            result = mference_process("remove", name, "--yes")
            assert (result.returncode, result.stdout) == (1, "")
            assert says in result.stderr
            assert result.stderr.count("\n") == 1
    assert (toy / "manifest.json").exists()
    assert (tmp_path / "mine/notes.txt").exists()


@pytest.mark.parametrize("fixed", [".", "toy.gturbo/packed_experts"])
def test_a_directory_that_is_read_only_is_named(cli_environment, toy, tmp_path, fixed):
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root writes anywhere unless it gives that up
        setpriv = shutil.which("setpriv")
        if not setpriv:
            pytest.skip("as root this needs setpriv")
        prefix = (setpriv, "--bounding-set=-dac_override", "--inh-caps=-all")
    (tmp_path / fixed).chmod(0o555)
    command = [*prefix, *COMMAND, "remove", "toy.gturbo", "--yes"]
    result = subprocess.run(
        command, cwd=tmp_path, env=cli_environment, text=True, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert f"mference: {toy} cannot be removed: " in result.stderr
    if fixed == ".":
        assert "you may not write to" in result.stderr
        assert (toy / "manifest.json").exists()
        return
    assert "Removing again goes on." in result.stderr
    assert not toy.exists()
    (tmp_path / "toy.gturbo.removing/packed_experts").chmod(0o755)
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=60).returncode == 0
    assert list(tmp_path.iterdir()) == []
