"""Which token comes next, given the logits of the last position.

Top-p is measured on the full distribution, then top-k cuts, then the temperature reweights what is
left. Equal tokens are ordered by id. A seeded draw depends on the seed, the position and the logits
alone. `logits` are float32 [vocabulary] with the model's softcap applied; `softcap` 0 means none.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mference.errors import DeviceError
from mference.session.config import SEEDS, GenerationConfig

# A penalised logit stays this far inside the cap, where the model's own logits are.
_INSIDE_CAP = 0.9999
_BLOCKS = 1024

Floats = NDArray[np.floating]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """Tokens that may be drawn, most likely first, and their probabilities (float64, sum 1)."""

    tokens: Ids
    weights: NDArray[np.float64]


def softcapped(logits: Floats, softcap: float) -> Floats:
    """softcap · tanh(logits / softcap), or the logits as they are when softcap is 0."""
    return softcap * np.tanh(logits / softcap) if softcap else logits


def softmax(logits: Floats) -> Floats:
    """Probabilities of the logits' own dtype; the sum is taken in float64."""
    weights: Floats = np.exp(logits - logits.max())
    weights /= weights.sum(dtype=np.float64)
    return weights


def penalized(
    logits: Floats, history: Iterable[int], penalty: float, softcap: float = 0.0
) -> Floats:
    """A copy in which every id of `history`, once each, is made less likely by `penalty`.

    A positive logit is divided by the penalty and any other multiplied; with a softcap the result
    stays inside it. Ids outside the vocabulary are ignored.
    """
    ids = np.unique(np.fromiter(history, np.int64))
    ids = ids[(ids >= 0) & (ids < logits.size)]
    chosen = logits[ids]
    # Beyond these bounds float32 logits would overflow, and 0 become NaN.
    penalty = min(max(penalty, 1e-30), 1e30)
    changed = np.where(chosen > 0, chosen / penalty, chosen * penalty)
    if softcap:
        changed = np.clip(changed, -softcap * _INSIDE_CAP, softcap * _INSIDE_CAP)
    result = logits.copy()
    result[ids] = changed
    return result


def highest(values: Floats, count: int) -> Ids:
    """Ids of the `count` highest values, highest first, equal ones by id."""
    ids: Ids
    if count >= values.size or values.size < 4 * _BLOCKS or count > _BLOCKS:
        ids = np.arange(values.size)
    else:
        # `count` blocks have a maximum of at least `bound`, so the highest values do as well: one
        # pass over the vocabulary leaves few enough to sort.
        whole = values.size - values.size % _BLOCKS
        maxima = values[:whole].reshape(_BLOCKS, -1).max(axis=1)
        bound = np.partition(maxima, _BLOCKS - count)[_BLOCKS - count]
        ids = np.flatnonzero(values >= bound)
    order = np.argsort(-values[ids], kind="stable")
    return ids[order[:count]]


def candidates(
    probabilities: Floats,
    *,
    top_k: int | None,
    top_p: float | None,
    temperature: float,
    order: Floats | None = None,
) -> Candidates:
    """The tokens that may be drawn and their weights.

    probabilities: [vocabulary], summing to 1. order: what ranks the tokens, the probabilities
    themselves unless given; logits tell apart what rounding made equal. temperature: over 0.
    """
    ranked = probabilities if order is None else order
    tokens = highest(ranked, ranked.size if top_k is None else top_k)
    masses = probabilities[tokens].astype(np.float64)
    if top_p is not None and top_p < 1:
        reached = int(np.searchsorted(np.cumsum(masses), top_p)) + 1
        tokens, masses = tokens[:reached], masses[:reached]
    weights = np.power(masses / masses[0], 1 / temperature)
    return Candidates(tokens, weights / weights.sum())


def draw(weights: Floats, seed: int, position: int) -> int:
    """An index into `weights`, drawn in proportion to them.

    The same seed and position give the same point between 0 and 1 (53 random bits).
    """
    bits = _mixed(_mixed(seed) + position) >> 11
    cumulated = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(cumulated, bits / (1 << 53) * cumulated[-1], side="right"))
    return min(index, int(np.flatnonzero(weights)[-1]))


class Sampler:
    """The sampling policy of one generation; it keeps the ids that were seen."""

    def __init__(self, config: GenerationConfig, softcap: float = 0.0) -> None:
        self._config = config
        self._softcap = softcap
        self._seed = secrets.randbelow(SEEDS) if config.seed is None else config.seed
        self._seen: set[int] = set()

    def observe(self, tokens: Sequence[int]) -> None:
        """Note tokens of the prompt or of the answer for the repetition penalty."""
        self._seen.update(tokens)

    @property
    def needs_logits(self) -> bool:
        """Whether the next token depends on more than which logit is the highest."""
        return not self._config.pure_greedy

    def sample(self, logits: NDArray[np.float32], position: int) -> int:
        """The token at `position` of the sequence, counted from 0 at its start.

        Raises:
            DeviceError: the logits hold NaN or have no finite maximum.
        """
        config = self._config
        if not np.isfinite(logits.max()):
            raise DeviceError(
                f"the model's logits at position {position} are not finite; "
                "verify the installation, and report this if it is intact"
            )
        effective: Floats = logits
        if config.repetition_penalty != 1 and self._seen:
            effective = penalized(logits, self._seen, config.repetition_penalty, self._softcap)
        if config.greedy:
            return int(effective.argmax())
        if config.top_k is None:
            # Nothing is cut off, so nothing needs sorting.
            below = (effective - effective.max()).astype(np.float64)
            with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf
                spread = np.exp(below / config.temperature)
            return draw(spread, self._seed, position)
        chosen = candidates(
            softmax(effective), top_k=config.top_k, top_p=config.top_p,
            temperature=config.temperature, order=effective,
        )  # fmt: skip
        return int(chosen.tokens[draw(chosen.weights, self._seed, position)])


def _mixed(value: int) -> int:
    """splitmix64's step and output function: 64 bits in, 64 well mixed bits out."""
    value = (value + 0x9E3779B97F4A7C15) % SEEDS
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % SEEDS
    value = (value ^ value >> 27) * 0x94D049BB133111EB % SEEDS
    return value ^ value >> 31
