"""What two installs of one source have in common."""

import json
from pathlib import Path


def contents(root: Path) -> dict[str, bytes]:
    """Every file of an install; of the receipt, what does not name the place and the time."""
    files = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    receipt = json.loads(files.pop("verified-install.json"))
    del receipt["modelDirectoryPath"], receipt["verificationTimestamp"]
    return {**files, "receipt": json.dumps(receipt, sort_keys=True).encode()}


def names_in(folder: Path) -> list[str]:
    """The names of what lies in a folder, in order."""
    return sorted(path.name for path in folder.iterdir())
