"""What a GPU takes less of than the kernels ask for."""

import numpy as np
import pytest

from mference import _core
from mference._core import ops
from mference.errors import DeviceError


def test_a_kernel_that_runs_fewer_threads_than_it_is_launched_with_is_an_error(kernels):
    tail = (kernels / "tail.metal").read_text()
    (kernels / "tail.metal").write_text(
        tail.replace("threadgroup(kRowThreads)", "threadgroup(256)")
    )
    rows, one = np.ones((1, 128), np.float32), np.full(128, 0x3F80, np.uint16)
    with pytest.raises(DeviceError, match=r"kernel layer_tail needs 512 threads .* GPU runs 256"):
        ops.layer_tail(_core.metal_device(str(kernels)), rows, rows, rows, one, one, one, one[:1])
