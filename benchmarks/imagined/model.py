"""What an imagined checkpoint is made of: tensors of random bytes or of one value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mference.families import Arch

PAGE = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """A tensor of the imagined checkpoint: random bytes, or one 16-bit value repeated."""

    dtype: str
    shape: tuple[int, ...]
    value: int | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape)) * (4 if self.dtype == "U32" else 2)

    def page(self, key: int, index: int) -> bytes:
        """The bytes of one page; the same for the same tensor and page, whoever asks."""
        length = min(PAGE, self.size - index * PAGE)
        if self.value is not None:
            return np.full(length // 2, self.value, "<u2").tobytes()
        return np.random.Generator(np.random.SFC64([key, index])).bytes(length)


class Tensors(dict[str, Tensor]):
    """The tensors of a checkpoint by name, in the order in which they were added.

    In 4-bit matrices code 0 stands for `lowest` steps, and the mean is 7.5 steps more.
    """

    def __init__(self, lowest: float) -> None:
        super().__init__()
        self._lowest = lowest

    def affine(
        self,
        name: str,
        *shape: int,
        bits: int = 4,
        gain: float = 1.0,
        lowest: float | None = None,
    ) -> None:
        """Add a quantized matrix whose rows have norm `gain`, but for their mean.

        At 8 bits, as of a router, the mean is zero. Steps have no more binary digits than leave the
        bias, `lowest` steps, a BF16 value.

        Raises:
            ValueError: no step does, as `lowest` itself is no BF16 value.
        """
        if bits == 8:
            lowest = -127.5
        elif lowest is None:
            lowest = self._lowest
        digits = digits_beside(lowest)
        wanted = gain / np.sqrt(shape[-1]) / np.sqrt(4**bits / 12)
        unit = 2.0 ** (np.floor(np.log2(wanted)) - digits + 1)
        step = np.round(wanted / unit) * unit
        bias = lowest * step
        self[name + ".weight"] = Tensor("U32", (*shape[:-1], shape[-1] * bits // 32))
        groups = (*shape[:-1], shape[-1] // 64)
        self[name + ".scales"] = Tensor("BF16", groups, bf16(float(step)))
        self[name + ".biases"] = Tensor("BF16", groups, bf16(float(bias)))

    def constant(self, name: str, *shape: int, value: float = 1.0) -> None:
        """Add a BF16 tensor that is `value` everywhere."""
        self[name] = Tensor("BF16", shape, bf16(value))


def digits_beside(factor: float) -> int:
    """The most binary digits of a number whose product with `factor` is always a BF16 value.

    Raises:
        ValueError: `factor` itself is none.
    """
    numerator = abs(factor.as_integer_ratio()[0])
    odd = numerator // (numerator & -numerator) if numerator else 1
    if odd > 255:
        raise ValueError(f"{factor} steps have more than the 8 binary digits of a BF16 value")
    return (255 // odd + 1).bit_length() - 1


def bf16(value: float) -> int:
    """The bits of the BF16 value below or at `value`, exact for the values used here."""
    return int(np.float32(value).view(np.uint32) >> 16)


@dataclass(frozen=True)
class ImaginedModel:
    """How to imagine the checkpoint of an entry.

    `tensors` and `config` take the architecture and a number of layers, and give every tensor and
    a config.json that describes them. `layer_bytes` and `common_bytes` are the sizes of the
    installed files, the second with all layers.
    """

    entry: str
    tensors: Callable[[Arch, int], Tensors]
    config: Callable[[Arch, int], dict[str, Any]]
    layer_bytes: int
    common_bytes: int
