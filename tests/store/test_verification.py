"""Verifying an install: every damaged file is found and named, each with what is wrong."""

import errno
import json
import os
from pathlib import Path

import pytest

from mference import errors
from mference.errors import Damage
from mference.store import find_damage, open_install, verify_install
from mference.store.directory import MANIFEST, RECEIPT, WEIGHTS
from tests.store.toys import write_toy

LAYERS = tuple(f"packed_experts/layer_{i:02d}.bin" for i in range(3))


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return write_toy(tmp_path / "toy.gturbo", layers=3)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def kinds(damaged: tuple[Damage, ...]) -> list[tuple[str, str]]:
    return [(damage.name, damage.problem) for damage in damaged]


def test_an_intact_install_has_no_damage(toy: Path):
    assert find_damage(toy) == ()


def test_every_damaged_file_is_found_with_what_is_wrong(toy: Path):
    flip(toy / LAYERS[0])
    (toy / LAYERS[1]).write_bytes(b"short")
    (toy / LAYERS[2]).unlink()
    flip(toy / "tokenizer/tokenizer.json")
    before = (toy / RECEIPT).read_bytes()
    damaged = find_damage(toy)
    assert kinds(damaged) == [
        (LAYERS[0], "hash"),
        (LAYERS[1], "size"),
        (LAYERS[2], "missing"),
        ("tokenizer/tokenizer.json", "hash"),
    ]
    assert damaged[1].detail == "has 5 bytes, the manifest says 32768"
    with pytest.raises(errors.IntegrityError) as caught:
        verify_install(toy)
    assert caught.value.damaged == damaged
    for damage in damaged:
        assert f"{damage.name} {damage.detail}" in str(caught.value)
    assert "damaged in 4 of its 8 files" in str(caught.value)
    assert str(caught.value).endswith(f": mference install --repair --output {toy}")
    assert (toy / RECEIPT).read_bytes() == before


def test_the_command_in_the_message_can_be_pasted(tmp_path: Path):
    toy = write_toy(tmp_path / "my toy.gturbo")
    flip(toy / WEIGHTS)
    with pytest.raises(errors.IntegrityError, match=r"--output '/.*/my toy\.gturbo'$"):
        verify_install(toy)


def test_the_error_is_of_the_first_damaged_file_s_class(toy: Path):
    (toy / WEIGHTS).unlink()
    flip(toy / LAYERS[0])
    with pytest.raises(errors.MissingFile) as caught:
        verify_install(toy)
    assert caught.value.name == WEIGHTS
    assert kinds(caught.value.damaged) == [(WEIGHTS, "missing"), (LAYERS[0], "hash")]


def test_a_damaged_layout_is_one_damaged_file_among_others(toy: Path):
    (toy / "packed_experts/layout.json").write_text("{")
    flip(toy / LAYERS[0])
    with pytest.raises(errors.IntegrityError) as caught:
        verify_install(toy)
    assert [damage.name for damage in caught.value.damaged] == [
        LAYERS[0],
        "packed_experts/layout.json",
    ]


def test_a_folder_or_a_broken_link_in_a_file_s_place_is_a_missing_file(toy: Path):
    for name in LAYERS[:2]:
        (toy / name).unlink()
    (toy / LAYERS[0]).mkdir()
    (toy / LAYERS[1]).symlink_to("nowhere")
    assert kinds(find_damage(toy)) == [(LAYERS[0], "missing"), (LAYERS[1], "missing")]


def test_a_file_that_the_disk_does_not_give_is_reported_and_the_others_still_hashed(
    toy: Path, monkeypatch: pytest.MonkeyPatch
):
    real = Path.open

    def broken(path: Path, *arguments, **options):
        if path.name == "layer_00.bin":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(errors.StoreError, match=r"Check the permissions and the disk\.$") as caught:
        verify_install(toy)
    assert kinds(caught.value.damaged) == [(LAYERS[0], "unreadable")]
    flip(toy / LAYERS[2])
    assert kinds(find_damage(toy)) == [(LAYERS[0], "unreadable"), (LAYERS[2], "hash")]


def test_progress_counts_only_what_is_hashed(toy: Path):
    (toy / LAYERS[0]).unlink()
    (toy / LAYERS[1]).write_bytes(b"short")
    flip(toy / WEIGHTS)
    seen: list[tuple[str, int, int]] = []
    find_damage(toy, lambda *step: seen.append(step))
    sizes = {n: f["size"] for n, f in json.loads((toy / MANIFEST).read_bytes())["files"].items()}
    assert {name for name, _, _ in seen} == set(sizes) - {*LAYERS[:2]}
    assert {total for _, _, total in seen} == {sum(sizes.values()) - 2 * 32768}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == seen[-1][2]


def test_a_manifest_that_cannot_be_read_is_an_error_and_no_damage(toy: Path):
    (toy / MANIFEST).write_text("{")
    with pytest.raises(errors.ManifestError):
        find_damage(toy)
    (toy / MANIFEST).unlink()
    with pytest.raises(errors.PartialInstall):
        find_damage(toy)


def test_a_wrong_layout_that_the_manifest_vouches_for_says_that_repairing_does_not_help(toy: Path):
    manifest = json.loads((toy / MANIFEST).read_bytes())
    (toy / MANIFEST).write_text(json.dumps({**manifest, "numLayers": 2}))
    with pytest.raises(errors.LayoutError) as caught:
        verify_install(toy)
    assert caught.value.damaged == ()
    assert "fetching it again does not help" in caught.value.__notes__[0]


def test_opening_names_the_damage_too(toy: Path):
    flip(toy / WEIGHTS)
    with pytest.raises(errors.IntegrityError, match="mference verify") as caught:
        open_install(toy, allow_unpinned=True)
    assert kinds(caught.value.damaged) == [(WEIGHTS, "hash")]
