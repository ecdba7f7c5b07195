"""The PTX device without a GPU: the emulator of tests/softmetal runs what the driver is handed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mference import _core

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SOFTMETAL = ROOT / "tests" / "softmetal"
CLANG = "clang++-19"
KERNEL = re.compile(r"^kernel void (\w+)\(", re.MULTILINE)

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "ptx_device") or shutil.which(CLANG) is None,
    reason="this build has no PTX device, or there is no clang 19",
)


def run(*command, **variables):
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    done = run(sys.executable, HERE / "compile.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def fake(tmp_path_factory, ptx):
    """Variables of a process that finds fake_cuda.cpp as its driver."""
    folder = tmp_path_factory.mktemp("cuda")
    maps = Path("/proc/self/maps").read_text("utf-8")
    emulator = Path(re.search(r"/\S*/libsoftmetal\.so", maps).group())
    done = run(
        CLANG, "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
        "-I", SOFTMETAL, HERE / "fake_cuda.cpp", "-L", emulator.parent, "-lsoftmetal",
        "-o", folder / "libcuda.so.1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sources = sorted((ROOT / "metal").glob("*.metal"))
    done = run(
        sys.executable, "-m", "mslc", *sources, "-o", folder / "kernels.so", PYTHONPATH=SOFTMETAL
    )
    assert done.returncode == 0, done.stderr
    return {
        "LD_LIBRARY_PATH": folder,
        "FAKE_CUDA_KERNELS": folder / "kernels.so",
        "MFERENCE_PTX": ptx,
    }


def test_every_kernel_has_a_text_of_its_own(ptx):
    sources = (ROOT / "metal").glob("*.metal")
    kernels = {name for path in sources for name in KERNEL.findall(path.read_text("utf-8"))}
    texts = {path.stem: path.read_text("utf-8") for path in ptx.glob("*.ptx")}
    assert kernels <= texts.keys()
    for name, text in texts.items():
        assert re.findall(r"\.entry (\w+)\(", text) == [name.split("-")[0]]


def check_suite(*arguments, **variables):
    """Runs the tests named, none of which may be skipped."""
    done = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow",
        *arguments, **variables,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_every_operation_hands_the_driver_what_its_kernels_need(fake):
    ptxas = {"FAKE_CUDA_PTXAS": shutil.which("ptxas")} if shutil.which("ptxas") else {}
    check_suite("-k", "ptx", "tests/device", **fake, **ptxas)


@pytest.mark.slow
@pytest.mark.parametrize("refuse", [False, True])
def test_the_demo_model_waits_and_wraps_memory(fake, refuse):
    """Whether the driver registers memory or not: then weights are copied."""
    refusing = {"FAKE_CUDA_REFUSE_REGISTER": "of files"} if refuse else {}
    check_suite("-p", "tests.ptx.as_metal", "tests/metal/test_demo_model.py", **fake, **refusing)


def test_a_launch_that_fails_is_named(fake):
    script = """
import os
from mference import _core
try:
    _core.ops.zero(_core.ptx_device(os.environ["MFERENCE_PTX"]), 5)
except Exception as error:
    print(type(error).__name__, error)
"""
    done = run(sys.executable, "-c", script, FAKE_CUDA_FAIL=1, **fake)
    assert done.stdout == (
        "DeviceError the GPU failed while it ran zero: CUDA_ERROR_ILLEGAL_ADDRESS (700), "
        "a fake one\n"
    ), done.stderr


def test_without_a_driver_the_device_says_so(ptx, tmp_path):
    (tmp_path / "libcuda.so.1").write_text("no library")
    script = "import sys; from mference import _core; _core.ptx_device(sys.argv[1])"
    done = run(sys.executable, "-c", script, ptx, LD_LIBRARY_PATH=tmp_path)
    assert "DeviceError: there is no CUDA driver here" in done.stderr
