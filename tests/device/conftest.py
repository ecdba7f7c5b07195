"""Each test of an operation runs on the CPU's devices, the Metal device and the PTX device."""

import pytest

from tests.device import support


@pytest.fixture(params=["cpu", "metal", "ptx"])
def check(request):
    """check(operation, expected): run `operation(device)` and compare, each path by its own bar."""
    gpu_device = support.gpu(request.param) if request.param != "cpu" else None

    def run(
        operation,
        expected,
        *,
        int16=support.INT16,
        float32=support.FLOAT32,
        gpu=support.GPU_FLOAT32,
    ):
        if gpu_device is not None:
            support.check_gpu(gpu_device, operation, expected, gpu)
        else:
            support.check_cpu(operation, expected, int16, float32)

    return run


@pytest.fixture(params=["cpu", "metal", "ptx"])
def devices(request):
    """All devices of one kind."""
    if request.param != "cpu":
        return [support.gpu(request.param)]
    return [*support.cpus(), support.cpu(float32=True)]
