"""Builds the software Metal device for its own tests."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "softmetal"
INSTALL = (
    "apt-get install --no-install-recommends clang-19 libclang-rt-19-dev libobjc-12-dev "
    "libblocksruntime-dev"
)


def missing_packages() -> str | None:
    """What the device cannot be built without and is not here."""
    if sys.platform != "linux":
        return "Linux"
    if shutil.which("clang++-19") is None:
        return "clang-19"
    if not any(Path("/usr/lib/gcc").glob("*/*/include/objc/objc.h")):
        return "libobjc-12-dev"
    if not Path("/usr/include/Block.h").exists():
        return "libblocksruntime-dev"
    return None


def build_probe(sanitizers: str = "") -> Path:
    """The driving module, built if need be. Raises CalledProcessError with what cmake printed."""
    import pybind11

    directory = (
        BUILD.with_name(f"softmetal-{sanitizers.replace(',', '-')}") if sanitizers else BUILD
    )
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "build.ninja").exists():
            _run(
                "cmake",
                "-G",
                "Ninja",
                "-S",
                str(HERE),
                "-B",
                str(directory),
                "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                f"-DCMAKE_CXX_COMPILER={shutil.which('clang++-19')}",
                f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
                f"-DPython_EXECUTABLE={sys.executable}",
                f"-DSOFTMETAL_SANITIZE={sanitizers}",
            )
        _run("cmake", "--build", str(directory), "--parallel", "2")
    return next(directory.glob("_softmetal*.so"))


def _run(*command: str) -> None:
    tools = Path(sys.executable).parent
    program = tools / command[0]
    subprocess.run(
        [str(program) if program.exists() else command[0], *command[1:]],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin"},
    )
