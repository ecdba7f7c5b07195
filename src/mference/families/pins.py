"""The pinned entries: each is a family, one source at one revision, and one architecture."""

from dataclasses import dataclass

from mference.families import (
    deepseek_v4_flash,
    gemma4,
    inkling_small,
    maple,
    qwen36,
    qwen38,
)
from mference.families.arch import Arch

GIB = 1 << 30

REQUIRED_SIDECARS = ("config.json", "tokenizer.json", "tokenizer_config.json")
OPTIONAL_SIDECARS = ("special_tokens_map.json", "chat_template.jinja", "chat_template.json")


@dataclass(frozen=True)
class PinnedEntry:
    """One checkpoint this package installs and runs.

    `index_sha256` is the SHA-256 of the source's `model.safetensors.index.json`, `revision` its
    commit, `reserve_bytes` the free disk space an install must leave, `sidecars` the files copied
    into `tokenizer/` (the first three required), `note` one line for people.

    `download_bytes` are what an install reads over the network, `installed_bytes` what it leaves
    on the disk. Figures that end in zeros are rounded; None is not known.
    """

    name: str
    family: str
    repo: str
    revision: str
    index_sha256: str
    model_id: str
    arch: Arch
    reserve_bytes: int
    note: str
    download_bytes: int | None
    installed_bytes: int | None
    sidecars: tuple[str, ...] = (*REQUIRED_SIDECARS, *OPTIONAL_SIDECARS)

    @property
    def embedded(self) -> bool:
        """Whether the source checkpoint is part of this package."""
        return self.name == DEMO_NAME


DEMO_NAME = "demo"
_DEMO_INDEX = "711edd004691e43af53a3a63d6ee1db6b0ee933875d6436ac29997a91b1cd359"

_PINS = (
    PinnedEntry(
        name="gemma4",
        family="gemma4",
        repo="mlx-community/gemma-4-26b-a4b-it-4bit",
        revision="0d77464eeb233a2da68ebf9d7dc4edaac7db956d",
        index_sha256="bf198c9f5ea6462addca1966e5dd669c407537a876e82cf06db9084c5c850b13",
        model_id="mlx-community/gemma-4-26b-a4b-it-4bit",
        arch=gemma4.BASELINE,
        reserve_bytes=GIB,
        note="Gemma 4 26B-A4B, 4-bit",
        download_bytes=14_232_000_000,
        installed_bytes=14_291_921_884,
    ),
    # The embedded checkpoint has no commit; the start of its index hash stands for one.
    PinnedEntry(
        name=DEMO_NAME,
        family="gemma4",
        repo="mference/demo",
        revision=_DEMO_INDEX[:40],
        index_sha256=_DEMO_INDEX,
        model_id="mference/demo",
        arch=gemma4.DEMO,
        reserve_bytes=GIB // 64,
        note="the embedded pocket dictionary",
        download_bytes=0,
        installed_bytes=16_392_563,
    ),
    PinnedEntry(
        name="qwen36",
        family="qwen36",
        repo="mlx-community/Qwen3.6-35B-A3B-4bit",
        revision="38740b847e4cb78f352aba30aa41c76e08e6eb46",
        index_sha256="0b28df60e33753a14e816d3b31577ae2c93884c58430a4a6de6ae9ea483842ea",
        model_id="qwen3.6-35b-a3b-4bit",
        arch=qwen36.BASELINE,
        reserve_bytes=GIB,
        note="Qwen 3.6 35B-A3B, 4-bit",
        download_bytes=19_529_025_048,
        installed_bytes=19_546_491_213,
    ),
    PinnedEntry(
        name="qwen38",
        family="qwen38",
        repo="mlx-community/Qwen3.8-27B-4bit",
        revision="3e6447f082e89cc7f0bc6e5441afd38dfce760ff",
        index_sha256="13b840162b4cb35c66fef7df072f7dbb4717908204364f5e5d9f9655a2758fa8",
        model_id="qwen3.8-27b-4bit",
        arch=qwen38.BASELINE,
        reserve_bytes=GIB,
        note="Qwen 3.8 27B, dense, 4-bit",
        download_bytes=None,
        installed_bytes=None,
    ),
    PinnedEntry(
        name="deepseekv4flash",
        family="deepseekV4Flash",
        repo="mlx-community/DeepSeek-V4-Flash-2bit-DQ",
        revision="722bf559b7de93575b2320973cf2002e05bfe6c9",
        index_sha256="d1c2d929ab0a35be32cf18026bb31d6f99dad58d6c93a5a2abbe43791f9d6c30",
        model_id="deepseek-v4-flash-2bit-dq",
        arch=deepseek_v4_flash.BASELINE,
        reserve_bytes=2 * GIB,
        note="DeepSeek-V4-Flash, 2-bit experts",
        download_bytes=96_530_000_000,
        installed_bytes=96_689_373_952,
    ),
    PinnedEntry(
        name="inklingsmall",
        family="inklingSmall",
        repo="pipenetwork/Inkling-Small-MLX-4bit",
        revision="9d6e4720ab7002af25d6129c88ccea6cd9f19372",
        index_sha256="fe16aec3cef12438f1d0ff657f7e785781b61271528a66b3b7160fcf1aaca30c",
        model_id="inkling-small-4bit",
        arch=inkling_small.BASELINE,
        reserve_bytes=2 * GIB,
        note="Inkling-Small, 4-bit",
        download_bytes=148_441_426_867,
        installed_bytes=148_421_176_017,
    ),
    PinnedEntry(
        name="maple",
        family="maple",
        repo="deepgrove/maple-preview-2bit-mlx",
        revision="361db5da5e74ff6fcdd852d478e1f266ce11013a",
        index_sha256="56000110535c5023b43209a5c142035e12c1cde7b1118759cc9f86335d46ef95",
        model_id="maple-preview-2bit-mlx",
        arch=maple.BASELINE,
        reserve_bytes=GIB,
        note="Maple preview, 2-bit",
        download_bytes=5_330_000_000,
        installed_bytes=6_590_000_000,
    ),
)

ENTRIES: dict[str, PinnedEntry] = {entry.name: entry for entry in _PINS}
