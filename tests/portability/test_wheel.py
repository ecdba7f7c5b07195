"""What `make wheel` built: complete, and at work in an environment of its own.

`MFERENCE_DIST` names the directory of the wheel and the source distribution.
"""

import json
import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from mference import _core

ROOT = Path(__file__).parents[2]
DIST = os.environ.get("MFERENCE_DIST")
PROMPTS = ROOT / "tests" / "data" / "demo" / "reference" / "prompts.json"

pytestmark = pytest.mark.skipif(DIST is None, reason="MFERENCE_DIST names no directory")


def only(pattern: str) -> Path:
    (path,) = (ROOT / DIST).glob(pattern)
    return path


@pytest.fixture(scope="module")
def wheel() -> Path:
    return only(f"*-cp3{sys.version_info.minor}-*manylinux*_{platform.machine()}.whl")


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """The programs of a new environment, outside the source tree, with the wheel installed."""
    home = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    programs = home / "venv" / "bin"
    subprocess.run(
        [programs / "pip", "install", "--quiet", "--disable-pip-version-check", wheel],
        check=True,
        cwd=home,
    )
    return programs


def run(*command: str | Path, cwd: Path) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    result = subprocess.run(
        command,
        check=True,
        cwd=cwd,
        env={**clean, "XDG_CACHE_HOME": str(cwd)},
        stdout=subprocess.PIPE,
        text=True,
    )
    return result.stdout


def test_the_demo_answers_from_the_wheel(environment, tmp_path):
    for answer in json.loads(PROMPTS.read_text("utf-8"))["answers"][:3]:
        command = environment / "mference"
        assert run(command, "demo", "--once", answer["prompt"], cwd=tmp_path) == (
            answer["answer"] + "\n"
        )


def test_the_wheel_runs_the_kernels_that_a_build_for_this_machine_runs(environment, tmp_path):
    program = "import json; from mference import _core; print(json.dumps(_core.cpu_isas()))"
    found = json.loads(run(environment / "python", "-c", program, cwd=tmp_path))
    assert found == _core.cpu_isas()


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    tracked = subprocess.run(
        ["git", "ls-files", "src"], check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    package = {line.removeprefix("src/") for line in tracked.stdout.splitlines()}
    assert {"mference/py.typed", "mference/_core.pyi"} <= package
    with zipfile.ZipFile(wheel) as archive:
        names = {entry.filename for entry in archive.infolist() if not entry.is_dir()}
    held = {name for name in names if ".dist-info/" not in name}
    assert held - {"mference/_core" + sysconfig.get_config_var("EXT_SUFFIX")} == package


def test_the_source_distribution_holds_what_the_wheel_is_built_from():
    with tarfile.open(only("*.tar.gz")) as archive:
        names = {name.split("/")[1] for name in archive.getnames()}
    assert names == {
        "CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "cpp", "docs",
        "metal", "pyproject.toml", "src",
    }  # fmt: skip
