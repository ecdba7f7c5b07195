"""What a copy may do to the bytes on their way: nothing, widen 2-bit codes, repeat BF16 values."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mference.errors import InstallError


@dataclass(frozen=True)
class Transform:
    """A length-changing copy: every `unit` input bytes become `unit * factor` output bytes."""

    name: str
    unit: int
    factor: int
    apply: Callable[[bytes], bytes] = field(compare=False, repr=False)

    @property
    def is_identity(self) -> bool:
        """Whether bytes are copied as they are."""
        return self.name == "identity"

    def tile(self, scratch: int) -> int:
        """Input bytes that can be transformed at once within `scratch` output bytes.

        Raises `InstallError` if not even one unit fits.
        """
        units = scratch // (self.unit * self.factor)
        if units < 1:
            raise InstallError(f"{scratch} bytes of scratch are too few for '{self.name}'")
        return units * self.unit


def _unpack(data: bytes) -> bytes:
    words = np.frombuffer(data, "<u4")
    halves = np.stack([words & 0xFFFF, words >> 16], axis=1)
    # Spread eight 2-bit codes over eight 4-bit fields, doubling the distance three times.
    for shift, mask in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333)):
        halves = (halves | (halves << shift)) & mask
    return halves.astype("<u4").tobytes()


IDENTITY = Transform("identity", 1, 1, lambda data: data)
UNPACK_2_TO_4 = Transform("unpack-int2-to-int4", 4, 2, _unpack)


def repeat_bf16(count: int, *, negate: bool) -> Transform:
    """Write each BF16 value `count` times in a row, with its sign flipped if `negate`.

    Raises `InstallError` for a count below 1.
    """
    if count < 1:
        raise InstallError(f"a BF16 value cannot be repeated {count} times")
    flip = 0x8000 if negate else 0

    def apply(data: bytes) -> bytes:
        return np.repeat(np.frombuffer(data, "<u2") ^ np.uint16(flip), count).tobytes()

    return Transform(f"repeat-bf16:{count}:{int(negate)}", 2, count, apply)
