"""The names, the page size and the size caps of a `.gturbo` directory."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path, PurePosixPath

from mference.errors import MissingFile, StoreError
from mference.jsontext import is_unicode

PAGE = 16384
HASH_BLOCK = 512 << 10

MANIFEST = "manifest.json"
RECEIPT = "verified-install.json"
WEIGHTS = "model_weights.bin"
EXPERTS = "packed_experts"
LAYOUT = f"{EXPERTS}/layout.json"
TOKENIZER = "tokenizer"

MANIFEST_CAP = 4 << 20
RECEIPT_CAP = 4 << 20
LAYOUT_CAP = 64 << 20
VERIFIER_CAP = 64 << 20

REINSTALL = (
    "See what is damaged with 'mference verify DIR' and fetch that again with 'mference install "
    "--repair --output DIR', or install the model again."
)


def page_rounded(size: int) -> int:
    """The smallest multiple of the format page (16 384 bytes) that is at least `size`."""
    return -(-size // PAGE) * PAGE


def layer_file(layer: int) -> str:
    """Base name of a layer's expert file: at least two digits."""
    return f"layer_{layer:02d}.bin"


def is_safe_name(path: str) -> bool:
    """Whether a `/`-separated relative path stays inside the directory it is joined to."""
    parts = path.split("/")
    return (
        is_unicode(path)
        and "\0" not in path
        and "\\" not in path
        and all(part not in ("", ".", "..") for part in parts)
        and not PurePosixPath(path).is_absolute()
    )


def standardized(path: str | os.PathLike[str]) -> str:
    """The absolute form of a path that receipts record.

    `.` and `..` are resolved lexically, other symlinks are kept. macOS spells some directories
    with and without a leading `/private`; the short form is used where both name one place.
    """
    full = os.path.abspath(os.fspath(path))  # noqa: PTH100 - lexical on purpose
    if sys.platform == "darwin" and full.startswith("/private/"):
        short = full.removeprefix("/private")
        if os.path.exists(short) and os.path.samefile(short, full):  # noqa: PTH110, PTH121
            return short
    return full


def read_capped(path: Path, cap: int, too_large: Callable[[str], Exception]) -> bytes:
    """The bytes of a file of at most `cap` bytes.

    Raises `MissingFile` if it does not exist, `StoreError` if it cannot be read, and what
    `too_large` makes above the cap.
    """
    try:
        # Opening a pipe would wait for someone to write.
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileNotFoundError
        with path.open("rb") as file:
            data = file.read(cap + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise MissingFile(f"{path} is missing. {REINSTALL}", path.name) from None
    except OSError as exc:
        raise unreadable(path, exc) from exc
    if len(data) > cap:
        raise too_large(f"{path.name} is larger than {cap} bytes")
    return data


def unreadable(path: Path, error: OSError) -> StoreError:
    """The error for a file that is there but that the system does not let us read."""
    return StoreError(f"cannot read {path}: {error.strerror}. Check its permissions and the disk.")


def sha256_file(
    path: Path, *, block: int = HASH_BLOCK, progress: Callable[[int], None] | None = None
) -> str:
    """Lowercase hex SHA-256 of a whole file, read `block` bytes at a time.

    `progress` is called with the bytes of each block. Raises `OSError`.
    """
    digest = sha256()
    for data in file_blocks(path, block):
        digest.update(data)
        if progress:
            progress(len(data))
    return digest.hexdigest()


def file_blocks(path: Path, block: int = HASH_BLOCK) -> Iterator[memoryview]:
    """A file's bytes, `block` at a time; each view is good until the next is asked for.

    Raises `OSError`.
    """
    buffer = memoryview(bytearray(block))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
