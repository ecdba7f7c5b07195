"""The `.gturbo` store: an installed model on disk, read, written and verified.

`open_install` gives the runtime what it needs; `verify_install` re-hashes everything, and
`find_damage` only says which files are damaged. The format itself is described in `docs/gturbo.md`.
"""

from mference.store.opening import Install, Policy, completeness, open_install
from mference.store.verify import VerifyReport, find_damage, verify_install

__all__ = [
    "Install",
    "Policy",
    "VerifyReport",
    "completeness",
    "find_damage",
    "open_install",
    "verify_install",
]
