"""Qwen 3.6's text stack in float64, formula by formula. Slow and plain: the truth of the tests.

Source of the formulas: the public implementations of Qwen 3.5 in mlx-lm and transformers, of which
`make test-all` compares it with the first. Weights of norms are taken as they are: conversion has
added the 1 that the original's zero-centred weights lack.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.formulas import Array, ranked, rms, sigmoid, silu, softmax

TRUNK = "language_model.model."
HEAD = "language_model.lm_head."


def l2(x: Array, eps: float = 1e-6) -> Array:
    """x / sqrt(sum(x^2) + eps) over the last axis."""
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps)


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def rope(x: Array, position: int, theta: float, rotated: int) -> Array:
    """Rotates pairs (i, i + rotated), i < rotated, of x [..., dim]; the rest stays as it is.

    The angle is position * theta^(-i/rotated): the 2 * rotated dimensions count as a whole head.
    """
    angle = position * theta ** (-np.arange(rotated) / rotated)
    low, high, rest = np.split(x, [rotated, 2 * rotated], axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([low * cos - high * sin, low * sin + high * cos, rest], axis=-1)


def delta_rule(state: Array, k: Array, v: Array, decay: Array, beta: Array) -> Array:
    """One step of the gated delta rule: the decayed state, moved towards answering k with v.

    state [..., values, keys], k [..., keys], v [..., values], decay and beta [...].
    """
    state = state * decay[..., None, None]
    error = v - np.einsum("...vk,...k->...v", state, k)
    return state + beta[..., None, None] * error[..., :, None] * k[..., None, :]


@dataclass
class Step:
    """What one token gave: logits, and how clear each router's choice was."""

    logits: Array  # [batch, vocabulary]
    gap: Array  # [batch]: smallest (k-th minus next score) / spread over the layers
    # By layer: keys and values [batch, heads, dim] of the token in a full one, the new delta state
    # [batch, heads, values, keys] and convolution tail [batch, taps - 1, channels] in a linear one.
    states: list[tuple[Array, Array]] = field(default_factory=list)


class Qwen36Reference:
    """The model with its own state; one token at a time, or several candidates for it.

    Args:
        config: the checkpoint's config.json.
        weights: tensor name (without quantization companions) to float64 array.
    """

    def __init__(self, config: dict[str, Any], weights: dict[str, Array]):
        self.config = config["text_config"]
        self.weights = weights
        self.position = 0
        self.full = [kind == "full_attention" for kind in self.config["layer_types"]]
        self.keys: list[list[Array]] = [[] for _ in self.full]
        self.values: list[list[Array]] = [[] for _ in self.full]
        c = self.config
        heads, values = c["linear_num_value_heads"], c["linear_value_head_dim"]
        keys = c["linear_key_head_dim"]
        channels = 2 * c["linear_num_key_heads"] * keys + heads * values
        self.deltas: list[Array] = [np.zeros((heads, values, keys)) for _ in self.full]
        self.tails: list[Array] = [
            np.zeros((c["linear_conv_kernel_dim"] - 1, channels)) for _ in self.full
        ]

    def logits(self, tokens: list[int]) -> Array:
        """Appends the tokens; float64 [len(tokens), vocabulary]."""
        rows = []
        for token in tokens:
            step = self.candidates(np.array([token]))
            self.append(step, 0)
            rows.append(step.logits[0])
        return np.array(rows)

    def append(self, step: Step, row: int) -> None:
        """Makes candidate `row` of a step part of the sequence."""
        for layer, (first, second) in enumerate(step.states):
            if self.full[layer]:
                self.keys[layer].append(first[row])
                self.values[layer].append(second[row])
            else:
                self.deltas[layer], self.tails[layer] = first[row], second[row]
        self.position += 1

    def candidates(self, tokens: NDArray[np.integer[Any]]) -> Step:
        """Each token as the next one, independently. Nothing is appended."""
        x = self.weights[TRUNK + "embed_tokens.weight"][tokens]
        step = Step(logits=np.empty(0), gap=np.full(len(tokens), np.inf))
        for layer, full in enumerate(self.full):
            a = rms(x, self._get(layer, "input_layernorm.weight"))
            x = x + (self._attend if full else self._recur)(layer, a, step)
            m = rms(x, self._get(layer, "post_attention_layernorm.weight"))
            x = x + self._feed_forward(layer, m, step)
        x = rms(x, self.weights[TRUNK + "norm.weight"])
        step.logits = x @ self.weights[HEAD + "weight"].T
        return step

    def _get(self, layer: int, name: str) -> Array:
        return self.weights[f"{TRUNK}layers.{layer}.{name}"]

    def _attend(self, layer: int, a: Array, step: Step) -> Array:
        c = self.config
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        rotary = c["rope_parameters"]
        rotated = int(dim * rotary["partial_rotary_factor"]) // 2
        batch = len(a)

        both = (a @ self._get(layer, "self_attn.q_proj.weight").T).reshape(batch, heads, 2 * dim)
        q, gate = both[..., :dim], both[..., dim:]
        k = (a @ self._get(layer, "self_attn.k_proj.weight").T).reshape(batch, kv_heads, dim)
        v = (a @ self._get(layer, "self_attn.v_proj.weight").T).reshape(batch, kv_heads, dim)
        q = rms(q, self._get(layer, "self_attn.q_norm.weight"))
        k = rms(k, self._get(layer, "self_attn.k_norm.weight"))
        q = rope(q, self.position, rotary["rope_theta"], rotated)
        k = rope(k, self.position, rotary["rope_theta"], rotated)
        step.states.append((k, v))

        share = heads // kv_heads
        out = np.empty((batch, heads, dim))
        for b in range(batch):
            keys = np.array([*self.keys[layer], k[b]])
            values = np.array([*self.values[layer], v[b]])
            for h in range(heads):
                weights = softmax(keys[:, h // share] @ q[b, h] * dim**-0.5)
                out[b, h] = weights @ values[:, h // share]
        out = out * sigmoid(gate)
        return out.reshape(batch, -1) @ self._get(layer, "self_attn.o_proj.weight").T

    def _recur(self, layer: int, a: Array, step: Step) -> Array:
        c = self.config
        key_heads, keys = c["linear_num_key_heads"], c["linear_key_head_dim"]
        heads, values = c["linear_num_value_heads"], c["linear_value_head_dim"]
        batch = len(a)

        u = a @ self._get(layer, "linear_attn.in_proj_qkv.weight").T
        z = (a @ self._get(layer, "linear_attn.in_proj_z.weight").T).reshape(batch, heads, values)
        alpha = a @ self._get(layer, "linear_attn.in_proj_a.weight").T
        beta = sigmoid(a @ self._get(layer, "linear_attn.in_proj_b.weight").T)
        rate = np.exp(self._get(layer, "linear_attn.A_log"))
        decay = np.exp(-rate * softplus(alpha + self._get(layer, "linear_attn.dt_bias")))

        taps = self._get(layer, "linear_attn.conv1d.weight")[..., 0]
        tail = np.broadcast_to(self.tails[layer], (batch, *self.tails[layer].shape))
        seen = np.concatenate([tail, u[:, None]], axis=1)
        mixed = silu(np.einsum("btc,ct->bc", seen, taps))
        q, k, v = np.split(mixed, [key_heads * keys, 2 * key_heads * keys], axis=-1)
        q = l2(q.reshape(batch, key_heads, keys)) * keys**-0.5
        k = l2(k.reshape(batch, key_heads, keys))
        q, k = (np.repeat(x, heads // key_heads, axis=1) for x in (q, k))
        v = v.reshape(batch, heads, values)
        delta = delta_rule(self.deltas[layer], k, v, decay, beta)
        step.states.append((delta, seen[:, 1:]))

        out = np.einsum("bhvk,bhk->bhv", delta, q)
        out = rms(out, self._get(layer, "linear_attn.norm.weight")) * silu(z)
        return out.reshape(batch, -1) @ self._get(layer, "linear_attn.out_proj.weight").T

    def _feed_forward(self, layer: int, m: Array, step: Step) -> Array:
        scores = m @ self._get(layer, "mlp.gate.weight").T
        ids, chosen, gap = ranked(scores, self.config["num_experts_per_tok"])
        step.gap = np.minimum(step.gap, gap)
        weights = softmax(chosen)  # over all experts and then divided by the sum: the same

        names = [f"{role}_proj.weight" for role in ("gate", "up", "down")]
        gate, up, down = (self._get(layer, "mlp.shared_expert." + name) for name in names)
        shared = (silu(m @ gate.T) * (m @ up.T)) @ down.T
        out = sigmoid(m @ self._get(layer, "mlp.shared_expert_gate.weight").T) * shared
        gates, ups, downs = (self._get(layer, "mlp.switch_mlp." + name) for name in names)
        for b in range(len(m)):
            for expert, weight in zip(ids[b], weights[b], strict=True):
                inner = silu(gates[expert] @ m[b]) * (ups[expert] @ m[b])
                out[b] += weight * (downs[expert] @ inner)
        return out
