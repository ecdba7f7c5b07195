"""A source, an output and what lies around them, for installs that must not touch the rest."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mference
from mference.errors import InstallError
from tests.installer.toys import write_source

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Place:
    """A folder that holds a toy source, the output's parent, and files that are none of theirs."""

    root: Path

    @property
    def source(self) -> Path:
        return self.root / "source"

    @property
    def output(self) -> Path:
        return self.root / "models" / "x.gturbo"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def shard(self) -> Path:
        return self.source / "model-00001-of-00002.safetensors"

    def sibling(self, suffix: str) -> Path:
        return self.output.with_name(self.output.name + suffix)

    def install(self, **options: Any) -> mference.InstallReport:
        return mference.install(
            self.source, self.output, entry="demo", allow_unpinned=True, **options
        )

    def refused(
        self, kind: type[InstallError], reason: str | None = None, **options: Any
    ) -> InstallError:
        """The error of an install that must end with it and leave everything as it was."""
        before = self.everything()
        with pytest.raises(InstallError) as caught:
            self.install(**options)
        assert (type(caught.value), getattr(caught.value, "reason", None)) == (kind, reason)
        after = self.everything()
        lock = self.sibling(".install.lock").relative_to(self.root)
        if lock not in before:
            assert after.pop(lock, None) in (None, (stat.S_IFREG | 0o600, b""))
        assert after == before
        return caught.value

    def everything(self, below: str = "") -> dict[Path, tuple[int, object]]:
        """Mode and contents of all that lies here: a file's digest, a symlink's target."""
        found = {}
        for folder, folders, files in os.walk(self.root / below):
            for path in (Path(folder) / name for name in (*folders, *files)):
                mode, contents = path.lstat().st_mode, None
                if stat.S_ISLNK(mode):
                    contents = path.readlink()
                elif stat.S_ISREG(mode):
                    size = path.stat().st_size
                    contents = (
                        hashlib.sha256(path.read_bytes()).digest() if size < 1 << 20 else size
                    )
                    contents = contents if size else b""
                found[path.relative_to(self.root)] = (mode, contents)
        return found

    def edit(self, name: str, change: Callable[[Any], object]) -> None:
        """Change a JSON file of the source; a change that returns something replaces it all."""
        path = self.source / name
        document = json.loads(path.read_text())
        replaced = change(document)
        path.write_text(json.dumps(document if replaced is None else replaced))

    def edit_header(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Change the header of the first shard, as `edit` does; the tensors' data stay."""
        data = self.shard.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        document = json.loads(data[8:end])
        replaced = change(document)
        self.write_header(json.dumps(document if replaced is None else replaced).encode())

    def write_header(self, text: bytes, length: int | None = None) -> None:
        """Replace the first shard's header; `length` is what it says of its own size."""
        data = self.shard.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        announced = len(text) if length is None else length
        self.shard.write_bytes(announced.to_bytes(8, "little") + text + data[end:])

    def map_tensor(self, name: str, shard: object) -> None:
        """Let the index say that a tensor lies in that shard."""
        self.edit(INDEX, lambda index: index["weight_map"].update({name: shard}))


def make_place(root: Path) -> Place:
    """A place with a toy source of two shards, and a secret outside of it."""
    place = Place(root)
    write_source(place.source)
    place.output.parent.mkdir()
    place.outside.mkdir()
    (place.outside / "secret").write_text("a secret")
    return place
