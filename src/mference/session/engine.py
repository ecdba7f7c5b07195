"""What the generation loop asks of a loaded model."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Engine(Protocol):
    """One sequence of tokens in the KV state of a loaded model.

    Every method that takes tokens puts them behind those in the state; they must fit the context.
    """

    @property
    def position(self) -> int:
        """Tokens in the KV state."""

    @property
    def vocabulary(self) -> int:
        """Rows of the output head."""

    @property
    def context(self) -> int:
        """Most tokens the KV state can hold."""

    @property
    def prefill_chunk(self) -> int:
        """Prompt tokens that are computed together."""

    @property
    def softcap(self) -> float:
        """Bound of the logits that the head applies, or 0."""

    def prefill(self, tokens: Sequence[int]) -> None:
        """Append tokens, and leave out the head."""

    def greedy(self, tokens: Sequence[int]) -> int:
        """Append tokens; the id of the highest logit after the last one, the lowest such id."""

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens; the logits after the last one, float32 [vocabulary], softcap applied."""

    def rewind(self, position: int) -> None:
        """Drop everything behind the first `position` tokens."""
