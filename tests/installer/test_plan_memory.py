"""The memory of planning the largest install, in a process that does nothing else."""

import json
import subprocess
import sys
from pathlib import Path

from tests.installer.checkpoints import full_config, write_without_payload

SHARD = 5 << 30
LIMIT = 150_000_000  # with the whole layout in memory it would be more

CHILD = """
import json, resource, sys, time
from pathlib import Path

from mference.families import ENTRIES
from mference.installer import FolderSource
from mference.installer.paths import planned_paths
from mference.installer.preparation import prepare
from mference.installer.run import Run

folder = Path(sys.argv[1])
paths = planned_paths(folder / "model.gturbo")
run = Run(FolderSource(folder), ENTRIES["deepseekv4flash"], paths, allow_unpinned=True)
began = time.monotonic()
prepared = prepare(run)
seconds = time.monotonic() - began
try:
    # Unlike getrusage's, this peak does not include the parent's memory at the fork.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
copies = sum(len(r.parts) for r in prepared.plan.ranges)
print(json.dumps({"peak": peak, "seconds": seconds, "copies": copies}))
"""


def test_planning_a_full_size_deepseek_install_takes_little_memory(tmp_path: Path):
    source = write_without_payload(tmp_path / "source", full_config("deepseekV4Flash"), SHARD)
    found = subprocess.run(
        [sys.executable, "-c", CHILD, str(source)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    measured = json.loads(found.stdout)
    assert measured["copies"] > 43 * 256 * 9
    assert measured["peak"] < LIMIT
