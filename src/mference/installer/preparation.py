"""What an install decides before it writes: the source's metadata, the plan, the sizes."""

import logging
from dataclasses import dataclass
from hashlib import sha256

from mference.errors import CheckpointError, InstallError
from mference.families import FAMILIES
from mference.installer.journal import Journal
from mference.installer.paths import is_inside
from mference.installer.plan import RangePlan, check_destinations, plan_ranges
from mference.installer.repack import Repack, plan_repack
from mference.installer.run import Run
from mference.installer.sidecars import sidecar_size
from mference.installer.snapshot import CONFIG_NAME, Snapshot, read_snapshot
from mference.store.layout import check_written_layout, encode_layout
from mference.store.resident import encode_index

UNPINNED_REVISION = "unpinned"


@dataclass(frozen=True)
class Preparation:
    """Everything known about an install before its first byte is copied.

    `index` and `layout` are the bytes of the resident index region and of `layout.json`,
    `sidecars` the bytes of each tokenizer file that the source has, the config's included.
    """

    snapshot: Snapshot
    repack: Repack
    plan: RangePlan
    index: bytes
    layout: bytes
    sidecars: dict[str, int]
    journal: Journal

    @property
    def output_bytes(self) -> int:
        """Bytes of the large files."""
        return sum(self.plan.outputs.values())

    @property
    def installed_bytes(self) -> int:
        """Bytes of all files that the manifest will list."""
        return self.output_bytes + len(self.layout) + sum(self.sidecars.values())

    @property
    def download_bytes(self) -> int:
        """Bytes that a fresh install has yet to read from the source."""
        sidecars = sum(size for name, size in self.sidecars.items() if name != CONFIG_NAME)
        return self.plan.source_bytes + sidecars


def prepare(run: Run) -> Preparation:
    """Read a source's metadata and plan its install.

    Raises the `InstallError` branch and `UnsupportedModel`.
    """
    snapshot = read_snapshot(run.source, run.entry, allow_unpinned=run.allow_unpinned)
    if snapshot.entry is None:
        logging.getLogger("mference").warning(
            "%s is no pinned source; nobody vouches for it.", run.source.description
        )
    family = FAMILIES[snapshot.arch.family]
    repack = plan_repack(
        family, snapshot.rules, snapshot.arch, snapshot.quantization, snapshot.tensors
    )
    _check_dense_layers(snapshot, repack)
    sizes = {name: sidecar_size(run.source, name) for name in run.entry.sidecars}
    index = encode_index(repack.index)
    plan = _plan_ranges(run, repack, index)
    layout = encode_layout(repack.layout)
    check_written_layout(
        layout,
        repack.layout.num_layers,
        repack.layout.experts_per_layer,
        repack.layout.expert_stride,
    )
    repo, revision = (
        (snapshot.entry.repo, snapshot.entry.revision)
        if snapshot.entry
        else (run.source.identity, UNPINNED_REVISION)
    )
    journal = Journal(
        repo=repo,
        revision=revision,
        commit=snapshot.commit,
        index_sha256=snapshot.index_sha256,
        fingerprint=plan.fingerprint(),
        total_source_bytes=plan.source_bytes,
    )
    sidecars = {name: size for name, size in sizes.items() if size is not None}
    return Preparation(snapshot, repack, plan, index, layout, sidecars, journal)


def _check_dense_layers(snapshot: Snapshot, repack: Repack) -> None:
    dense = snapshot.arch.integer("numDenseLayers")
    for layer in repack.layout.layers:
        if not layer.experts and layer.layer >= dense:
            raise CheckpointError(
                f"the source has no experts for layer {layer.layer}", "configuration_error"
            )


def _plan_ranges(run: Run, repack: Repack, index: bytes) -> RangePlan:
    check_destinations(repack.copies)
    root = str(run.paths.partial)
    for path in repack.outputs:
        if not is_inside(root, f"{root}/{path}"):
            raise InstallError(f"{path!r} would be written outside {root}")
    return RangePlan(
        chunk=run.limits.chunk,
        ranges=plan_ranges(repack.copies, run.limits.chunk),
        outputs=repack.outputs,
        index_sha256=sha256(index).hexdigest(),
    )
