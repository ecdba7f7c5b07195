"""Counts the conformance cases that ran, by directory and kind, and says so at the end."""

from collections import Counter

import pytest

_RAN: Counter[tuple[str, str, str]] = Counter()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    outcome = yield
    case = getattr(item, "callspec", None) and item.callspec.params.get("case")
    report = outcome.get_result()
    if case is not None and report.when == ("setup" if report.skipped else "call"):
        _RAN[case.source, f"{case.area}.{case.kind}", report.outcome] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter):
    if not _RAN:
        return
    terminalreporter.section("conformance cases")
    for (source, kind, outcome), count in sorted(_RAN.items()):
        terminalreporter.line(f"{source:24} {kind:36} {outcome:8} {count:5}")
