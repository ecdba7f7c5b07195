"""A checkpoint that huggingface_hub left in its cache is a source by its repository's folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from mference.errors import SourceMismatch
from mference.families import ENTRIES
from mference.installer import install
from mference.installer.hub_cache import checkpoint_folder
from mference.installer.source import DEMO_CHECKPOINT
from tests.installer.command import environment
from tests.installer.contents import contents
from tests.installer.hub import serve_hub

DEMO = ENTRIES["demo"]
DOWNLOAD = """
import sys
from huggingface_hub import hf_hub_download
for name in sys.argv[3:]:
    hf_hub_download(sys.argv[1], name, revision=sys.argv[2])
"""


def cached(folder: Path, *revisions: str) -> Path:
    """A repository's folder with snapshots of those revisions, empty."""
    for revision in revisions:
        (folder / "snapshots" / revision).mkdir(parents=True)
    return folder


def test_what_the_hubs_own_client_downloaded_installs_without_the_network(
    tmp_path: Path, demo_install: Path
):
    names = sorted(path.name for path in DEMO_CHECKPOINT.iterdir() if path.is_file())
    with serve_hub(DEMO_CHECKPOINT, DEMO.repo, DEMO.revision, tmp_path) as hub:
        subprocess.run(
            [sys.executable, "-c", DOWNLOAD, DEMO.repo, DEMO.revision, *names],
            env=environment({**hub.environment, "HF_HUB_DISABLE_XET": "1"}),
            check=True,
        )
    folder = checkpoint_folder(tmp_path / "hub" / "models--mference--demo", DEMO.revision)
    assert all((folder / name).is_symlink() for name in names)
    result = install(folder, tmp_path / "x.gturbo", entry="demo")
    assert result.entry is DEMO
    assert contents(result.path) == contents(demo_install)


def test_a_snapshot_among_others_is_found_by_its_revision(tmp_path: Path):
    folder = cached(tmp_path, "a" * 40, "b" * 40)
    assert checkpoint_folder(str(folder), "b" * 40) == folder / "snapshots" / ("b" * 40)


@pytest.mark.parametrize("name", ["snapshots", "model", "missing"])
def test_any_other_folder_is_taken_as_it_is(tmp_path: Path, name):
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "model").mkdir()
    assert checkpoint_folder(tmp_path / name, "a" * 40) == tmp_path / name


def test_a_checkpoint_beside_a_folder_called_snapshots_is_taken_as_it_is(tmp_path: Path):
    cached(tmp_path, "b" * 40)
    (tmp_path / "model.safetensors.index.json").touch()
    assert checkpoint_folder(tmp_path, "a" * 40) == tmp_path


def test_the_revisions_that_are_there_are_named_if_the_pinned_one_is_not(tmp_path: Path):
    folder = cached(tmp_path, "c" * 40, "b" * 40)
    (folder / "snapshots" / ("a" * 40)).touch()
    with pytest.raises(SourceMismatch, match=f"revision {'a' * 40}, but {'b' * 40}, {'c' * 40}. D"):
        checkpoint_folder(folder, "a" * 40)
    cached(tmp_path, *(f"{i:040}" for i in range(20)))
    with pytest.raises(SourceMismatch, match="and 14 more"):
        checkpoint_folder(folder, "a" * 40)


def test_a_repository_without_a_revision_says_which_one_is_wanted(tmp_path: Path):
    (tmp_path / "snapshots").mkdir()
    with pytest.raises(SourceMismatch, match=f"no revision.*{'a' * 40}"):
        checkpoint_folder(tmp_path, "a" * 40)
