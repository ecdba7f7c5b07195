"""Runs every example of the README and the docs the way a reader would.

A `python` block is run as a script. In a `console` block each line after `$ ` is a command, and the
lines below it are what it prints; `...` stands for anything. Each page starts in a directory that
holds only the files that docs/cli.md prints.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
JSON = re.compile(r"^```json\n(.*?)^```$", re.DOTALL | re.MULTILINE)
JSON_FILES = ("chat.json", "tools.json", "weather.json")  # in the order of docs/cli.md


@dataclass(frozen=True)
class Example:
    page: Path
    language: str
    text: str


def examples() -> list:
    found = []
    for page in PAGES:
        content = page.read_text("utf-8")
        for match in FENCE.finditer(content):
            line = content.count("\n", 0, match.start()) + 1
            name = f"{page.relative_to(ROOT)}:{line}"
            found.append(pytest.param(Example(page, match[1], match[2]), id=name))
    return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Gives the examples of a page a directory and a cache of their own."""
    printed = JSON.findall((ROOT / "docs/cli.md").read_text("utf-8"))

    @functools.cache
    def place_of(page: Path) -> Path:
        place: Path = tmp_path_factory.mktemp(page.stem)
        for name, text in zip(JSON_FILES, printed, strict=True):
            (place / name).write_text(text)
        return place

    return place_of


def pattern_of(expected: str) -> str:
    return re.escape(expected.strip()).replace(re.escape("..."), ".*?")


def matches(expected: str, printed: str) -> bool:
    return re.fullmatch(pattern_of(expected), printed.strip(), re.DOTALL) is not None


def run(command: list[str] | str, place: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(place / "cache"),
        "XDG_STATE_HOME": str(place / "state"),
        "COLUMNS": "100",
    }
    return subprocess.run(
        command,
        cwd=place,
        env=environment,
        shell=isinstance(command, str),
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("example", examples())
def test_example_prints_what_the_page_says(example: Example, workplace):
    place = workplace(example.page)
    if example.language == "python":
        result = run([sys.executable, "-c", example.text], place)
        assert result.returncode == 0, result.stderr
        comments = re.findall(r"^ *print\(.*\)  # (.*)$", example.text, re.MULTILINE)
        for comment in comments:
            assert re.search(pattern_of(comment), result.stdout, re.DOTALL), result.stdout
        return
    for block in re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]:
        command, _, expected = block.partition("\n")
        if shlex.split(command)[0] in ("make", "git", "pip"):
            continue  # the suite itself runs from what these built
        result = run(command, place)
        assert result.returncode == 0, result.stderr
        if expected.strip():
            assert matches(expected, result.stdout), result.stdout + result.stderr
