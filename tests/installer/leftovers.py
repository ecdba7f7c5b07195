"""Makes what installs leave when they are cut short."""

from pathlib import Path

import pytest

from mference.installer import Progress, install


def interrupt_install(output: Path, *, after: int = 8_000_000, overwrite: bool = False) -> None:
    """An install of the embedded model, ended by Ctrl-C once `after` bytes are copied."""

    def stop(progress: Progress) -> None:
        if progress.phase == "copy" and progress.done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(output=output, entry="demo", overwrite=overwrite, progress=stop)
