"""The devices a model can run on."""

import sys
from typing import Literal, get_args

from mference import _core
from mference.errors import ConfigError, DeviceError

Device = Literal["auto", "cpu", "metal"]
"""What a user may ask for; `auto` is the GPU of a Mac where there is one, else the CPU."""

DeviceName = Literal["cpu", "metal"]


def built_devices() -> tuple[DeviceName, ...]:
    """The devices that this build of the package has."""
    return ("cpu", "metal") if hasattr(_core, "metal_device") else ("cpu",)


def open_device(
    name: Device = "auto",
    *,
    threads: int = 0,
    isa: str = "auto",
    float32_products: bool = False,
) -> tuple[DeviceName, _core.Device]:
    """The device of that name, and which one it is.

    Args:
        name: what to open.
        threads: compute threads of the CPU; 0 for one a processor.
        isa: instruction set of the CPU's kernels, or `auto`.
        float32_products: plain float32 products on the CPU instead of int16 activations.

    Raises:
        ConfigError: there is no device of that name.
        DeviceError: this build or this machine does not have it.
    """
    if name not in get_args(Device):
        raise ConfigError(f"device {name!r}: choose one of {', '.join(get_args(Device))}")
    if name == "metal" and "metal" not in built_devices():
        raise DeviceError("the metal device needs a Mac, and this is none; choose device cpu")
    if name == "metal":
        return "metal", _core.metal_device()
    if name == "auto" and sys.platform == "darwin":
        try:
            return "metal", _core.metal_device()
        except DeviceError:  # an older system or an Intel Mac
            pass
    cpu = _core.cpu_device(threads=threads, isa=isa, float32_products=float32_products)
    return "cpu", cpu
