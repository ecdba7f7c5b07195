"""Compiles the kernels of metal/ to PTX, a file for each: `python tests/ptx/compile.py FOLDER`."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOFTMETAL = ROOT / "tests" / "softmetal"

DEFINITION = re.compile(r"^\.(?:visible|weak) \.(?:func|entry) .*?^}$", re.MULTILINE | re.DOTALL)
FORWARD = re.compile(r"^\.(?:visible|weak) \.func [^{]*?;$", re.MULTILINE)
ENTRY = re.compile(r"^\.visible \.entry (\w+)\(")
SHARED = re.compile(r"^\.shared .*? (\w+)\[\d+\];$", re.MULTILINE)
ARRAY = "kHeadChunks"  # a constant that is the length of a kernel's arrays
ARRAY_KERNEL = "attention_split"
ARRAY_VALUES = (1, 2, 4, 8)


def compile_source(source: Path) -> str:
    with tempfile.NamedTemporaryFile(suffix=".ptx") as out:
        command = [sys.executable, "-m", "mslc", "--ptx", "-o", out.name, source]
        subprocess.run(command, cwd=SOFTMETAL, check=True, stdout=subprocess.DEVNULL)
        return Path(out.name).read_text("utf-8")


def split(text: str) -> dict[str, str]:
    """The text of each kernel by itself, with the variables that it uses."""
    kernels = {}
    text = FORWARD.sub("", text)
    head = DEFINITION.sub("", text)
    for definition in DEFINITION.findall(text):
        entry = ENTRY.match(definition)
        if entry is None:
            continue
        if "\tcall" in definition:
            sys.exit(f"{entry.group(1)} calls a function: it should have been inlined")
        own = SHARED.sub(lambda m, d=definition: m.group() if m.group(1) in d else "", head)
        kernels[entry.group(1)] = re.sub(r"\n{2,}", "\n", own + "\n" + definition + "\n")
    return kernels


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for source in sorted((ROOT / "metal").glob("*.metal")):
        for name, text in split(compile_source(source)).items():
            (folder / f"{name}.ptx").write_text(text, "utf-8")
    with tempfile.TemporaryDirectory() as copy:
        metal = Path(shutil.copytree(ROOT / "metal", Path(copy) / "metal"))
        common = (metal / "common.h").read_text("utf-8")
        for value in ARRAY_VALUES:
            # The constant keeps its place among the others, under another name.
            fixed = f"constant int {ARRAY}_given [[function_constant(10)]];\n"
            fixed += f"#define {ARRAY} {value}"
            declared = f"constant int {ARRAY} [[function_constant(10)]];"
            if declared not in common:
                sys.exit(f"metal/common.h does not say: {declared}")
            (metal / "common.h").write_text(common.replace(declared, fixed), "utf-8")
            text = split(compile_source(metal / "attention.metal"))[ARRAY_KERNEL]
            (folder / f"{ARRAY_KERNEL}-{value}.ptx").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
