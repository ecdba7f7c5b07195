"""Makes what installs leave when they are cut short."""

from pathlib import Path

import pytest

from mference.families import ENTRIES
from mference.installer import FolderSource, Limits
from mference.installer.installer import carry_out
from mference.installer.paths import prepared_paths
from mference.installer.run import Run
from mference.installer.source import DEMO_CHECKPOINT, Sink


class _Stopping(FolderSource):
    """The embedded checkpoint, until a range after the second is asked for."""

    ranges = 0

    def read(self, name: str, offset: int, length: int, size: int, sink: Sink) -> None:
        self.ranges += length > 1 << 20
        if self.ranges > 2:
            raise KeyboardInterrupt
        super().read(name, offset, length, size, sink)


def interrupt_install(output: Path, *, overwrite: bool = False) -> None:
    """An install of the embedded model, ended by Ctrl-C once two of its four ranges are copied."""
    source, paths = _Stopping(DEMO_CHECKPOINT), prepared_paths(output)
    limits = Limits(connections=1)
    with pytest.raises(KeyboardInterrupt):
        carry_out(Run(source, ENTRIES["demo"], paths, overwrite=overwrite, limits=limits))
