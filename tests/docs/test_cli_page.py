"""docs/cli.md names every flag of every command, and no other."""

import re
from pathlib import Path

import pytest
import typer.main

from mference.cli import app
from mference.cli.options import GenerationOptions

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text("utf-8")
COMMANDS = typer.main.get_command(app).commands
SHARED = "What generate and chat share"
SHARED_FLAGS = {"--" + name.replace("_", "-") for name in GenerationOptions.__dataclass_fields__}


def section(title: str) -> str:
    """The page's text from the heading `## title` to the next of its kind."""
    return re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[
        1
    ]


def listed(title: str) -> set[str]:
    """What stands in the first column of the section's tables and starts like a flag."""
    return set(re.findall(r"^\| `(--[a-z-]+)", section(title), re.MULTILINE))


def flags(command: str) -> set[str]:
    return {o for p in COMMANDS[command].params for o in p.opts if o.startswith("--")} - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_of_each_command_are_listed(command):
    shared = listed(SHARED) if command in ("generate", "chat") else set()
    assert listed(command) | shared == flags(command)
    assert not listed(command) & shared


def test_what_generate_and_chat_share_is_listed_once():
    assert listed(SHARED) == SHARED_FLAGS


def test_the_overview_has_every_command():
    overview = re.search(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
    assert re.findall(r"^mference (\w+)", overview, re.MULTILINE) == list(COMMANDS)


def test_no_text_names_a_flag_that_does_not_exist():
    known = set().union(*(flags(command) for command in COMMANDS)) | {"--help", "--version"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) <= known


@pytest.mark.parametrize("option", [p for p in COMMANDS["generate"].params if p.default])
def test_a_default_is_the_program_s_own(option):
    row = re.search(rf"^\| `{option.opts[0]}.*$", section(SHARED), re.MULTILINE)[0]
    default = row.split(" | ")[1].strip("`")
    assert default == str(option.default).removesuffix(".0")
