"""An engine whose tokens are written down beforehand, for testing what surrounds it."""

import numpy as np


class ScriptedEngine:
    """Draws `produced` one after another; its logits put one token above all others."""

    def __init__(self, produced, *, context=1 << 20, prefill_chunk=4096, vocabulary=64, held=()):
        self.tokens = list(held)
        self.context = context
        self.prefill_chunk = prefill_chunk
        self.vocabulary = vocabulary
        self.softcap = 0.0
        self.calls = []
        self._produced = iter(produced)

    @property
    def position(self):
        return len(self.tokens)

    def prefill(self, tokens):
        self.calls.append(("prefill", len(tokens)))
        self.tokens += tokens

    def greedy(self, tokens):
        self.calls.append(("greedy", len(tokens)))
        self.tokens += tokens
        return next(self._produced)

    def logits(self, tokens):
        self.calls.append(("logits", len(tokens)))
        self.tokens += tokens
        logits = np.full(self.vocabulary, -10, np.float32)
        logits[next(self._produced)] = 10
        return logits

    def rewind(self, position):
        del self.tokens[position:]


def drained(events):
    """All events of a generation, and how it ended."""
    seen = []
    while True:
        try:
            seen.append(next(events))
        except StopIteration as end:
            return seen, end.value
