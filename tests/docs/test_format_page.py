"""docs/gturbo.md says of each family whether this version runs it."""

import re
from pathlib import Path

from mference.families import FAMILIES

PAGE = (Path(__file__).parents[2] / "docs/gturbo.md").read_text("utf-8")


def test_the_table_of_sources_says_which_families_run():
    table = re.search(r"^\| \| runs \|.*?\n\n", PAGE, re.DOTALL | re.MULTILINE)[0]
    rows = re.findall(r"^\| (\w+) \| (\w+) \|", table, re.MULTILINE)
    known = {name: family for name, family in FAMILIES.items() if family.rules}
    del known["gemma4"]  # the section before is its own
    assert dict(rows) == {n: "yes" if family.runnable else "no" for n, family in known.items()}
