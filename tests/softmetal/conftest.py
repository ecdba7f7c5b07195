"""Builds the device and the module that drives it, once, and skips without its packages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.softmetal.driver import Metal
from tests.softmetal.probe import INSTALL, build_probe, missing_packages

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture(scope="session")
def probe_path() -> Path:
    """The driving module's file."""
    missing = missing_packages()
    if missing:
        pytest.skip(f"{missing} is missing: {INSTALL}")
    try:
        return build_probe()
    except subprocess.CalledProcessError as error:
        pytest.fail(f"the software Metal device does not build:\n{error.stdout}")


@pytest.fixture(scope="session")
def probe(probe_path: Path) -> ModuleType:
    """The driving module, in this process."""
    spec = importlib.util.spec_from_file_location("_softmetal", probe_path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["_softmetal"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def metal(probe: ModuleType) -> Metal:
    """A device with one queue; settings are as they were afterwards."""
    return Metal(probe)


@pytest.fixture(autouse=True)
def _settings_stay(request: pytest.FixtureRequest):
    if "probe" not in request.fixturenames and "metal" not in request.fixturenames:
        yield
        return
    probe = request.getfixturevalue("probe")
    names = (
        "seed",
        "threads",
        "check",
        "page_size",
        "max_buffer_length",
        "fail_command_buffer",
        "fail_compile",
        "delay_completion_us",
        "event_timeout_ms",
        "os_major",
        "gpu_family",
    )
    before = {name: probe.get(name) for name in names}
    yield
    for name, value in before.items():
        probe.set(name, value)
