"""Formulas that the models' references share, on float64 arrays."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def rms(x: Array, weight: Array | None = None, eps: float = 1e-6) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def softmax(x: Array) -> Array:
    """exp(x) / sum(exp(x)) over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def ranked(scores: Array, k: int) -> tuple[NDArray[np.int64], Array, Array]:
    """Ids and scores of the k largest in each row, and how clear the choice was.

    The lower id is first among equals. The third is the k-th score minus the next, over the spread
    of the row; infinite where everything is chosen.
    """
    order = np.argsort(-scores, axis=-1, kind="stable")
    sorted_scores = np.take_along_axis(scores, order, axis=-1)
    gap = np.full(len(scores), np.inf)
    if k < scores.shape[-1]:
        gap = (sorted_scores[:, k - 1] - sorted_scores[:, k]) / scores.std(axis=-1)
    return order[:, :k], sorted_scores[:, :k], gap
