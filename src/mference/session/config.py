"""Settings of one generation."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mference.errors import ConfigError

MAX_TOP_K = 256
SEEDS = 1 << 64
_MOST = sys.float_info.max


@dataclass(frozen=True)
class GenerationConfig:
    """How an answer is drawn and where it ends; checked when made.

    max_new: most tokens to draw, at least 1; cut to the room left in the context window.
    temperature: 0 takes the most likely token, whatever top_k, top_p and seed say.
    top_k: 1 to 256 most likely tokens are kept, or None for all.
    top_p: shortest list of tokens that has this much of the probability, in (0, 1], or None.
    repetition_penalty: over 1 makes tokens that already occurred less likely, below 1 more.
    seed: 0 to 2^64 - 1 makes draws repeatable; None draws differently each time.
    stop: texts that end the answer; a single text is taken as one stop.
    """

    max_new: int = 1024
    temperature: float = 0.2
    top_k: int | None = 64
    top_p: float | None = 0.95
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(stop, Sequence) or not all(isinstance(text, str) for text in stop):
            raise ConfigError(f"stop: expected texts, got {self.stop!r}")
        object.__setattr__(self, "stop", tuple(stop))
        _check("max_new", _is_int(self.max_new) and self.max_new >= 1, self.max_new, "1 or more")
        _check(
            "temperature", _is_finite(self.temperature) and self.temperature >= 0,
            self.temperature, "0 or more; 0 is greedy",
        )  # fmt: skip
        _check(
            "top_k",
            self.top_k is None or (_is_int(self.top_k) and 1 <= self.top_k <= MAX_TOP_K),
            self.top_k, f"1 to {MAX_TOP_K}, or switched off",
        )  # fmt: skip
        _check(
            "top_p", self.top_p is None or (_is_finite(self.top_p) and 0 < self.top_p <= 1),
            self.top_p, "over 0 and at most 1",
        )  # fmt: skip
        _check(
            "repetition_penalty",
            _is_finite(self.repetition_penalty) and self.repetition_penalty > 0,
            self.repetition_penalty, "over 0; 1 switches it off",
        )  # fmt: skip
        _check(
            "seed", self.seed is None or (_is_int(self.seed) and 0 <= self.seed < SEEDS),
            self.seed, "a whole number from 0 to 2^64 - 1",
        )  # fmt: skip
        if self.temperature > 0 and self.top_k is None and self.nucleus:
            raise ConfigError(
                f"top_p {self.top_p} needs top_k when sampling: set top_k to 1...{MAX_TOP_K}, or "
                "top_p to 1"
            )

    @property
    def nucleus(self) -> bool:
        """Whether top_p cuts anything off."""
        return self.top_p is not None and self.top_p < 1

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken instead of a draw."""
        return self.temperature == 0

    @property
    def pure_greedy(self) -> bool:
        """Whether the device's own argmax is the next token, so that no logits are needed."""
        return self.greedy and self.repetition_penalty == 1


def _check(name: str, ok: bool, value: object, expected: str) -> None:
    if not ok:
        raise ConfigError(f"{name} is {value!r}; it must be {expected}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    # A whole number can be larger than any float, and comparing it is exact.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MOST
