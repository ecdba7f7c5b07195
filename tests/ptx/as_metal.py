"""Tests of the Metal device on the PTX device: `pytest -p tests.ptx.as_metal tests/metal`."""

from mference import _core
from tests.device.support import PTX

_core.metal_device = lambda: _core.ptx_device(str(PTX))
