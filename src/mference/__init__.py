"""Run big mixture-of-experts language models in a fraction of their size in memory.

    import mference

    mference.install(output="demo.gturbo", entry="demo")
    with mference.load("demo.gturbo") as model:
        print(model.chat([{"role": "user", "content": "What is a lighthouse?"}]).content)

`install` repacks a pinned checkpoint into a `.gturbo` directory, `verify` re-hashes one, `repair`
fetches again what is damaged, `load` opens it. Errors are in `mference.errors`, all below
`MferenceError`.
"""

from importlib.metadata import version

from mference.errors import MferenceError
from mference.installer import (
    InstallPlan,
    InstallReport,
    Progress,
    RepairReport,
    install,
    repair,
)
from mference.model import Answer, Model, load
from mference.report import Memory, Report
from mference.session.config import GenerationConfig
from mference.session.results import Completion, Reply
from mference.store import VerifyReport
from mference.store import verify_install as verify

__version__ = version("mference")

__all__ = [
    "Answer",
    "Completion",
    "GenerationConfig",
    "InstallPlan",
    "InstallReport",
    "Memory",
    "MferenceError",
    "Model",
    "Progress",
    "RepairReport",
    "Reply",
    "Report",
    "VerifyReport",
    "__version__",
    "install",
    "load",
    "repair",
    "verify",
]
