"""The compiler: what it takes, what it refuses and where, its cache, and its other targets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.softmetal.driver import KERNELS, PRELUDE
from tests.softmetal.probe import HERE, INSTALL, missing_packages

pytestmark = pytest.mark.skipif(
    missing_packages() is not None, reason=f"{missing_packages()} is missing: {INSTALL}"
)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "mslc", *map(str, arguments)]


def mslc(*arguments: str | Path, cache: Path, text: str | None = None):
    """What a run of the compiler gave."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "SOFTMETAL_CACHE": str(cache)}
    return subprocess.run(
        command(*arguments), input=text, capture_output=True, text=True, env=environment
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


FILES = sorted(KERNELS.glob("*.metal"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_kernels_pass_the_check_with_strict_address_spaces(file: Path, cache: Path) -> None:
    result = mslc("--check", file, cache=cache)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_kernels_compile_to_ptx_with_an_entry_for_each(
    file: Path, cache: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.ptx"
    result = mslc("--ptx", file, "-o", out, cache=cache)
    assert result.returncode == 0, result.stderr
    text = out.read_text()
    assert ".target sm_90" in text
    entries = re.findall(r"\.visible \.entry (\w+)\(", text)
    assert sorted(entries) == sorted(result.stdout.split())
    if shutil.which("ptxas"):
        subprocess.run(["ptxas", "-arch=sm_90", out, "-o", tmp_path / "out.cubin"], check=True)


def test_several_files_are_one_library_and_share_their_headers(cache: Path) -> None:
    result = mslc("--check", KERNELS / "vector.metal", KERNELS / "matrix.metal", cache=cache)
    assert result.returncode == 0, result.stderr
    assert {"copy", "multiply_half"} <= set(result.stdout.split())


def kernel(body: str, before: str = "") -> str:
    return (
        f"{PRELUDE}{before}\nkernel void k(device float* x [[buffer(0)]],\n constant uint& n "
        f"[[buffer(1)]], uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
    )


REFUSED = {
    "double": (kernel("x[0] = double(1);"), "6: error: 'double' is not available in Metal"),
    "new": (kernel("thread float* p = new float; x[0] = *p;"), "6: error: 'new' is not available"),
    "goto": (kernel("goto end; end: x[0] = 1;"), "'goto' is not available in Metal"),
    "lambda": (
        kernel("auto f = [](float y) { return y; }; x[0] = f(1);"),
        "6: error: lambda expressions are not available in Metal 3.1",
    ),
    "std": (kernel("x[0] = std::sqrt(2.0f);"), "'std' is not available in Metal"),
    "virtual": (
        kernel("x[0] = 1;", "struct S { virtual void f(); };"),
        "'virtual' is not available",
    ),
    "pointer_parameter": (
        kernel("x[0] = 1;", "float f(float* p) { return *p; }"),
        "3: error: parameter 'p' of 'f' is a pointer or reference without an",
    ),
    "reference_parameter": (
        kernel("x[0] = 1;", "float f(const float& p) { return p; }"),
        "parameter 'p' of 'f' is a pointer or reference without an",
    ),
    "local_pointer": (
        kernel("float* p = x; p[0] = 1;"),
        "6: error: 'p' is a pointer or reference without an address space",
    ),
    "recursion": (
        kernel("x[0] = f(3);", "int f(int n) { return n < 2 ? n : f(n - 1); }"),
        "3: error: 'f' is recursive",
    ),
    "mutual_recursion": (
        kernel(
            "x[0] = f(3);",
            "int g(int n);\nint f(int n) { return g(n); }\nint g(int n) { return f(n); }",
        ),
        "error: 'f' is recursive",
    ),
    "threadgroup_initializer": (
        kernel("threadgroup float a[2] = {0, 1}; x[0] = a[1];"),
        "6: error: a threadgroup variable cannot have an initializer",
    ),
    "threadgroup_in_function": (
        kernel("x[0] = f();", "float f() { threadgroup float a[2]; return a[0]; }"),
        "3: error: threadgroup variables can be declared in kernels only",
    ),
    "same_index": (
        PRELUDE + "kernel void k(device float* a [[buffer(0)]], device float* b [[buffer(0)]]) {}",
        "'a' and 'b' of kernel 'k' are both buffer(0)",
    ),
    "index_31": (
        PRELUDE + "kernel void k(device float* a [[buffer(31)]]) {}",
        "buffer(31) is past the last",
    ),
    "no_attribute": (
        PRELUDE + "kernel void k(device float* a [[buffer(0)]], uint i) {}",
        "parameter 'i' of kernel 'k' has neither an attribute nor an address space",
    ),
    "position_sizes": (
        PRELUDE
        + "kernel void k(device float* a [[buffer(0)]], uint2 i [[thread_position_in_grid]], "
        "uint3 t [[threads_per_grid]]) {}",
        "must all be vectors of the same size",
    ),
    "position_type": (
        PRELUDE
        + "kernel void k(device float* a [[buffer(0)]], int i [[thread_position_in_grid]]) {}",
        "position attributes are uint or ushort",
    ),
    "constant_written": (kernel("n = 1;"), "6:3: error: cannot assign to variable 'n'"),
    "as_type_sizes": (kernel("x[0] = as_type<float>(half(1));"), "between types of the same size"),
    "ambiguous_max": (kernel("x[0] = max(x[1], 0);"), "6:8: error: call to 'max' is ambiguous"),
    "vector_conversion": (kernel("float4 v = half4(1); x[0] = v.x;"), "error: cannot initialize"),
    "vector_elements": (
        kernel("float4 v = float4(float2(1), 2.0f); x[0] = v.x;"),
        "must give each element once",
    ),
    "matrix_type": (
        kernel("simdgroup_half8x8 m; simdgroup_load(m, x, 8); simdgroup_store(m, x, 8);"),
        "reads elements of the matrix's own type",
    ),
    "unbalanced": (
        PRELUDE + "kernel void k(device float* x [[buffer(0)]]) { x[0] = (1; }",
        "unmatched",
    ),
    "unknown_header": ('#include "nowhere.h"\n', "1:10: fatal error: 'nowhere.h' file not found"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_metal_refuses_is_refused_with_its_line(case: str, cache: Path) -> None:
    text, message = REFUSED[case]
    result = mslc(text=text, cache=cache)
    assert result.returncode == 1
    assert message in result.stderr
    assert "program_source:" in result.stderr
    assert "Traceback" not in result.stderr


STRICT = {
    "threadgroup_as_device": (
        kernel("threadgroup float a[4]; f(a);", "void f(device float* p) { p[0] = 1; }"),
        "error: no matching function for call to 'f'",
    ),
    "thread_as_device": (
        kernel("float a[4]; f(a);", "void f(device float* p) { p[0] = 1; }"),
        "error: no matching function for call to 'f'",
    ),
    "constant_as_device": (
        PRELUDE
        + "kernel void k(constant float* c [[buffer(0)]], "
        + "device float* x [[buffer(1)]]) { x = c; }",
        "error: assigning 'constant float *",
    ),
}


@pytest.mark.parametrize("case", STRICT)
def test_the_check_tells_address_spaces_apart(case: str, cache: Path) -> None:
    text, message = STRICT[case]
    result = mslc("--check", text=text, cache=cache)
    assert result.returncode == 1
    # Clang prints the attribute behind Metal's keyword.
    assert message in re.sub(
        r"const __attribute__\(\(address_space\(2\)\)\)", "constant", result.stderr
    ).replace("const constant", "constant")


def test_the_check_takes_copies_of_structs_out_of_other_address_spaces(cache: Path) -> None:
    text = (
        PRELUDE
        + """
    struct S { float a[3]; uint n; };
    kernel void k(device S* x [[buffer(0)]], constant S& c [[buffer(1)]]) {
      threadgroup S t;
      S a = c;
      const S b = x[1];
      a.n += b.n;
      x[0] = a;
      t = a;
    }
    """
    )
    result = mslc("--check", text=text, cache=cache)
    assert result.returncode == 0, result.stderr


def test_a_second_compilation_comes_from_the_cache(tmp_path: Path) -> None:
    text = kernel("x[i] = float(n);")
    first, again = (mslc(text=text, cache=tmp_path).stdout.strip() for _ in range(2))
    assert first == again
    stamp = Path(first).stat().st_mtime_ns
    assert mslc(text=text, cache=tmp_path).stdout.strip() == first
    assert Path(first).stat().st_mtime_ns == stamp
    other = mslc(text=kernel("x[i] = 2;"), cache=tmp_path).stdout.strip()
    assert other != first


def test_many_processes_share_a_cache(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE), "SOFTMETAL_CACHE": str(tmp_path / "new")}
    processes = [
        subprocess.Popen(
            command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(6)
    ]
    outputs = [process.communicate(kernel("x[i] = 3;")) for process in processes]
    assert len({output for output, _ in outputs}) == 1
    assert [error for _, error in outputs] == [""] * 6
    libraries = list((tmp_path / "new").glob("*.so"))
    assert [str(path) for path in libraries] == [outputs[0][0].strip()]
    assert not list((tmp_path / "new").glob("*.partial"))
