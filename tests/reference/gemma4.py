"""Gemma 4's text stack in float64, formula by formula. Slow and plain: the truth of the tests.

Source of the formulas: the public implementations of Gemma 4 in mlx-lm and transformers, with which
`make test-all` compares it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.formulas import Array, ranked, rms, softmax

TRUNK = "language_model.model."


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def rope(x: Array, position: int, theta: float, rotated: int) -> Array:
    """Rotates pairs (i, i + dim/2), i < rotated, of x [..., dim] by position * theta^(-2i/dim)."""
    half = x.shape[-1] // 2
    angle = np.zeros(half)
    angle[:rotated] = position * theta ** (-2.0 * np.arange(rotated) / x.shape[-1])
    low, high = x[..., :half], x[..., half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)


@dataclass
class Step:
    """What one token gave: logits, and how clear each router's choice was."""

    logits: Array  # [batch, vocabulary]
    gap: Array  # [batch]: smallest (k-th minus next score) / spread over the layers
    keys: list[Array] = field(default_factory=list)  # by layer: [batch, heads, dim]
    values: list[Array] = field(default_factory=list)


class Gemma4Reference:
    """The model with its own keys and values; one token at a time, or several candidates for it.

    Args:
        config: the checkpoint's config.json.
        weights: tensor name (without quantization companions) to float64 array.
    """

    def __init__(self, config: dict[str, Any], weights: dict[str, Array]):
        self.config = config["text_config"]
        self.weights = weights
        self.position = 0
        self.keys: list[list[Array]] = [[] for _ in self.config["layer_types"]]
        self.values: list[list[Array]] = [[] for _ in self.config["layer_types"]]

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
        for layer, (k, v) in enumerate(zip(step.keys, step.values, strict=True)):
            self.keys[layer].append(k[row])
            self.values[layer].append(v[row])
        self.position += 1

    def candidates(self, tokens: NDArray[np.integer[Any]]) -> Step:
        """Each token as the next one, independently. Nothing is appended."""
        c = self.config
        hidden = c["hidden_size"]
        x = self.weights[TRUNK + "embed_tokens.weight"][tokens] * np.sqrt(hidden)
        step = Step(logits=np.empty(0), gap=np.full(len(tokens), np.inf))
        for layer in range(len(c["layer_types"])):
            x = self._attend(layer, x, step)
            x = self._feed_forward(layer, x, step)
        x = rms(x, self.weights[TRUNK + "norm.weight"])
        z = x @ self.weights[TRUNK + "embed_tokens.weight"].T
        cap = c["final_logit_softcapping"]
        step.logits = cap * np.tanh(z / cap)
        return step

    def _get(self, layer: int, name: str) -> Array:
        return self.weights[f"{TRUNK}layers.{layer}.{name}"]

    def _attend(self, layer: int, x: Array, step: Step) -> Array:
        c = self.config
        kind = c["layer_types"][layer]
        full = kind == "full_attention"
        dim = c["global_head_dim"] if full else c["head_dim"]
        heads = c["num_attention_heads"]
        kv_heads = c["num_global_key_value_heads"] if full else c["num_key_value_heads"]
        rotary = c["rope_parameters"][kind]
        rotated = int(dim * rotary.get("partial_rotary_factor", 1.0)) // 2
        batch = len(x)

        a = rms(x, self._get(layer, "input_layernorm.weight"))
        q = (a @ self._get(layer, "self_attn.q_proj.weight").T).reshape(batch, heads, dim)
        raw_k = (a @ self._get(layer, "self_attn.k_proj.weight").T).reshape(batch, kv_heads, dim)
        raw_v = raw_k
        if not full:
            raw_v = a @ self._get(layer, "self_attn.v_proj.weight").T
            raw_v = raw_v.reshape(batch, kv_heads, dim)
        q = rms(q, self._get(layer, "self_attn.q_norm.weight"))
        k = rms(raw_k, self._get(layer, "self_attn.k_norm.weight"))
        q = rope(q, self.position, rotary["rope_theta"], rotated)
        k = rope(k, self.position, rotary["rope_theta"], rotated)
        v = rms(raw_v)
        step.keys.append(k)
        step.values.append(v)

        first = 0 if full else max(0, self.position - c["sliding_window"] + 1)
        share = heads // kv_heads
        out = np.empty((batch, heads, dim))
        for b in range(batch):
            keys = np.array([*self.keys[layer][first:], k[b]])
            values = np.array([*self.values[layer][first:], v[b]])
            for h in range(heads):
                weights = softmax(keys[:, h // share] @ q[b, h])
                out[b, h] = weights @ values[:, h // share]
        projected = out.reshape(batch, -1) @ self._get(layer, "self_attn.o_proj.weight").T
        return x + rms(projected, self._get(layer, "post_attention_layernorm.weight"))

    def _feed_forward(self, layer: int, x: Array, step: Step) -> Array:
        c = self.config
        d = rms(x, self._get(layer, "pre_feedforward_layernorm.weight"))
        gate = gelu_tanh(d @ self._get(layer, "mlp.gate_proj.weight").T)
        up = d @ self._get(layer, "mlp.up_proj.weight").T
        dense = (gate * up) @ self._get(layer, "mlp.down_proj.weight").T
        dense = rms(dense, self._get(layer, "post_feedforward_layernorm_1.weight"))

        scaled = rms(x) * self._get(layer, "router.scale") * c["hidden_size"] ** -0.5
        scores = scaled @ self._get(layer, "router.proj.weight").T
        ids, chosen, gap = ranked(scores, c["top_k_experts"])
        step.gap = np.minimum(step.gap, gap)
        weights = softmax(chosen) * self._get(layer, "router.per_expert_scale")[ids]
        m = rms(x, self._get(layer, "pre_feedforward_layernorm_2.weight"))
        gates = self._get(layer, "experts.switch_glu.gate_proj.weight")
        ups = self._get(layer, "experts.switch_glu.up_proj.weight")
        downs = self._get(layer, "experts.switch_glu.down_proj.weight")
        routed = np.zeros_like(x)
        for b in range(len(x)):
            for expert, weight in zip(ids[b], weights[b], strict=True):
                inner = gelu_tanh(gates[expert] @ m[b]) * (ups[expert] @ m[b])
                routed[b] += weight * (downs[expert] @ inner)
        routed = rms(routed, self._get(layer, "post_feedforward_layernorm_2.weight"))

        both = rms(dense + routed, self._get(layer, "post_feedforward_layernorm.weight"))
        return (x + both) * self._get(layer, "layer_scalar")
