"""A routing trace: the experts of every token and layer, and their replay through slot caches."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from mference import _core
from mference.errors import ConfigError, TraceError

_VERSION = 1


@dataclass(frozen=True)
class Replay:
    """What a cache of some size would have done with a trace."""

    hits: int
    misses: int

    @property
    def hit_rate(self) -> float:
        """Share of expert requests that found a slot; 0 if there were none."""
        return self.hits / max(1, self.hits + self.misses)


@dataclass
class RoutingTrace:
    """The experts that the router chose.

    experts: ids, int16 [tokens, layers, top_k], best first; -1 in layers without a router. One row
        for each token that was computed, in order, prompts included.
    num_experts: experts of a layer.
    """

    num_experts: int
    experts: npt.NDArray[np.int16] = field(default_factory=lambda: np.empty((0, 0, 0), np.int16))

    def save(self, path: str | Path) -> None:
        """Write a numpy archive (.npz) with the arrays `experts`, `num_experts` and `version`.

        Raises:
            TraceError: the file cannot be written.
        """
        try:
            with Path(path).open("wb") as file:
                np.savez_compressed(
                    file, experts=self.experts, num_experts=self.num_experts, version=_VERSION
                )
        except OSError as error:
            raise TraceError(f"cannot write {path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: str | Path) -> "RoutingTrace":
        """Read what `save` wrote.

        Raises:
            TraceError: the file cannot be read, or is no trace.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                version, experts = int(archive["version"]), archive["experts"]
                trace = cls(int(archive["num_experts"]), experts)
        except OSError as error:
            raise TraceError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, BadZipFile) as error:
            raise TraceError(f"{path} is no routing trace") from error
        if version != _VERSION or experts.dtype != np.int16 or experts.ndim != 3:
            raise TraceError(f"{path} is no routing trace of this version")
        return trace

    def replay(self, slots: int, policy: Literal["lfu", "lru"] = "lfu") -> Replay:
        """Run the trace, token by token, through an empty cache of `slots` slots a layer.

        Raises:
            ConfigError: a token needs more experts than there are slots.
        """
        layers, top_k = self.experts.shape[1:]
        if slots < top_k:
            raise ConfigError(f"{slots} slots: a token of this trace needs {top_k}")
        hits = 0
        for layer in range(layers):
            cache = _core.ExpertCache(slots, self.num_experts, policy)
            for ids in self.experts[:, layer].tolist():
                plan = cache.plan([e for e in ids if e >= 0])
                assert plan is not None
                cache.publish(plan)
                hits += plan.hits
        return Replay(hits, int((self.experts >= 0).sum()) - hits)
