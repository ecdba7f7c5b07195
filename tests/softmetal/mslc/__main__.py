"""The command line: `python -m mslc FILE.metal... -o OUT`, run from tests/softmetal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .build import build_library, build_ptx, check
from .cache import Cache, default_directory
from .errors import CompileError


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mslc", description=__doc__)
    parser.add_argument("sources", nargs="*", type=Path, help="joined; standard input if absent")
    parser.add_argument("-o", "--output", type=Path)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="check with strict address spaces only")
    mode.add_argument("--ptx", action="store_true", help="compile to PTX for sm_90")
    parser.add_argument("--variant", choices=("plain", "checked", "thread"), default="plain")
    parser.add_argument("-D", dest="macros", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--metal-version", type=int, default=310, help="__METAL_VERSION__")
    parser.add_argument("--name", default="program_source", help="of standard input in messages")
    return parser.parse_args()


def main() -> int:
    """Prints the path of the library, or the names of the kernels."""
    given = _arguments()
    cache = Cache(default_directory())
    include = None
    if given.sources:
        text = "".join(f'#include "{path.resolve()}"\n' for path in given.sources)
        name, include = "command line", given.sources[0].resolve().parent
    else:
        text, name = sys.stdin.read(), given.name
    common = (text, name, include, given.macros, given.metal_version)
    try:
        if given.check:
            print("\n".join(check(*common, cache)))
        elif given.ptx:
            if given.output is None:
                print("mslc: --ptx needs -o FILE", file=sys.stderr)
                return 2
            print("\n".join(build_ptx(*common, given.output, cache)))
        else:
            path = build_library(*common, given.variant, cache)
            if given.output is not None:
                given.output.write_bytes(path.read_bytes())
            print(given.output or path)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
