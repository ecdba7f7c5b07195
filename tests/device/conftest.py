"""Each test of an operation runs on the CPU's devices and on the Metal device."""

import pytest

from tests.device import support


@pytest.fixture(params=["cpu", "metal"])
def check(request):
    """check(operation, expected): run `operation(device)` and compare, each path by its own bar."""
    if request.param == "metal":
        support.metal()

    def run(
        operation,
        expected,
        *,
        int16=support.INT16,
        float32=support.FLOAT32,
        gpu=support.GPU_FLOAT32,
    ):
        if request.param == "metal":
            support.check_metal(operation, expected, gpu)
        else:
            support.check_cpu(operation, expected, int16, float32)

    return run


@pytest.fixture(params=["cpu", "metal"])
def devices(request):
    """All devices of one kind."""
    if request.param == "metal":
        return [support.metal()]
    return [*support.cpus(), support.cpu(float32=True)]
