"""Every message that docs/troubleshooting.md quotes is one that the program can print."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
LEAST = 14  # letters that a quotation must have beside its gaps


def quotations() -> list[str]:
    """What stands as code before the first colon that ends a list item's symptom."""
    found = []
    for item in re.findall(r"^- (`.*?)(?=^- |^$|\Z)", PAGE, re.DOTALL | re.MULTILINE):
        symptom = re.match(r"(?:`[^`]+`(?:,?\s+(?:and|or)\s+|,\s+)?)+(?=:)", item)
        if symptom:
            found += re.findall(r"`([^`]+)`", symptom[0])
    return found


def literals() -> Iterator[str]:
    """The fixed parts of every text in the sources: between placeholders, joined where adjacent."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    core = (path for path in (ROOT / "cpp").rglob("*") if path.suffix in (".cpp", ".h", ".mm"))
    for path in sorted(core):
        for run in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s+"(?:[^"\\\n]|\\.)*")*', path.read_text()):
            yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', run))


SOURCES = "\n".join(literals())


def test_the_page_quotes_messages():
    assert len(quotations()) > 60


@pytest.mark.parametrize("quotation", quotations())
def test_a_quoted_message_occurs_in_the_sources(quotation):
    parts = [part.strip() for part in quotation.split("...")]
    assert sum(map(len, parts)) >= LEAST
    for part in parts:
        assert part in SOURCES
