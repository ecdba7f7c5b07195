"""The tokenizer files and the config, which an install keeps byte for byte."""

from hashlib import sha256
from pathlib import Path

from mference.errors import CheckpointError
from mference.families.pins import REQUIRED_SIDECARS
from mference.installer.run import Run
from mference.installer.snapshot import CONFIG_NAME, Snapshot
from mference.installer.source import Source
from mference.store.directory import TOKENIZER
from mference.store.manifest import FileRecord
from mference.store.writing import new_file, sync_directory, write_durably

SIDECAR_CAPS = {
    "config.json": 1 << 20,
    "tokenizer.json": 64 << 20,
    "tokenizer_config.json": 4 << 20,
    "special_tokens_map.json": 1 << 20,
    "chat_template.jinja": 4 << 20,
    "chat_template.json": 4 << 20,
}


def sidecar_size(source: Source, name: str) -> int | None:
    """Bytes of a tokenizer file; None if the source has none and it is optional.

    Raises `CheckpointError` as `copy_sidecar` does.
    """
    size = source.size(name)
    if size is None and name in REQUIRED_SIDECARS:
        raise CheckpointError(f"{source.description} has no {name}", "missing_file")
    if size is not None and size > SIDECAR_CAPS[name]:
        raise CheckpointError(f"{name} has {size} bytes: too large", "too_large")
    return size


def copy_sidecar(run: Run, name: str, path: Path) -> FileRecord | None:
    """Copy a tokenizer file to `path`; None if the source has none and it is optional.

    Raises `CheckpointError` if a required file is missing (`missing_file`) or one is too large
    (`too_large`).
    """
    size = sidecar_size(run.source, name)
    if size is None:
        return None
    digest = sha256()
    with new_file(path) as file:

        def take(block: bytes) -> None:
            digest.update(block)
            file.write(block)

        if size:
            run.source.read(name, 0, size, size, take)
    return FileRecord(size, digest.hexdigest())


def write_sidecars(run: Run, snapshot: Snapshot) -> dict[str, FileRecord]:
    """Write the entry's tokenizer files and config into the partial directory.

    Raises the `InstallError` branch and `OSError`.
    """
    files = {}
    for name in run.entry.sidecars:
        path = run.paths.partial / TOKENIZER / name
        if name == CONFIG_NAME:
            write_durably(path, snapshot.config)
            record = FileRecord(len(snapshot.config), sha256(snapshot.config).hexdigest())
        else:
            found = copy_sidecar(run, name, path)
            if found is None:
                continue
            record = found
        files[f"{TOKENIZER}/{name}"] = record
    sync_directory(run.paths.partial / TOKENIZER)
    return files
