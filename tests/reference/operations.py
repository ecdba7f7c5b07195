"""The operations of `cpp/device/ops.h` in float64 numpy, formula by formula.

Matrices are `affine.Quantized`, vectors of weights are BF16 bits; every result is float64 (ids are
integers).
"""

import numpy as np

from tests.reference.affine import Quantized, bf16_float, dequantize


def product(x, weight: Quantized):
    """W x for rows x [rows, cols]."""
    return np.asarray(x, np.float64) @ dequantize(weight).T


def rms(x, weight=None, eps: float = 1e-6):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    x = np.asarray(x, np.float64)
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * bf16_float(weight).astype(np.float64)


def gelu_tanh(u):
    """0.5 u (1 + tanh(v)) with v = sqrt(2 / pi) (u + 0.044715 u^3).

    Written as u / (1 + exp(-2 v)), which does not cancel where tanh is near -1.
    """
    return u / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))


def silu(u):
    """u / (1 + exp(-u))."""
    return u / (1 + np.exp(-u))


ACTIVATIONS = {"gelu_tanh": gelu_tanh, "silu": silu}


def rope(x, angles):
    """Rotate pairs (i, i + dim / 2) of x [rows, heads, dim] by cos, sin [rows, rotated, 2]."""
    x = np.array(x, np.float64)
    half, rotated = x.shape[-1] // 2, angles.shape[1]
    cos, sin = (np.asarray(angles, np.float64)[:, None, :, i] for i in (0, 1))
    lo, hi = x[..., :rotated].copy(), x[..., half : half + rotated].copy()
    x[..., :rotated] = lo * cos - hi * sin
    x[..., half : half + rotated] = lo * sin + hi * cos
    return x


def embed_rows(table: Quantized, tokens, scale: float = 1.0):
    """Rows `tokens` of the dequantized table, times scale."""
    return dequantize(table)[np.asarray(tokens)] * scale


def norm_qkv(x, norm, q, k, v=None, eps: float = 1e-6):
    """q, k and v (or None) of rms(x, norm)."""
    a = rms(x, norm, eps)
    return product(a, q), product(a, k), None if v is None else product(a, v)


def qkv_epilogue(q, k, v, q_norm, k_norm, angles, eps: float = 1e-6):
    """Normed and rotated queries and keys, and normed values, [rows, heads, dim] each."""
    return rope(rms(q, q_norm, eps), angles), rope(rms(k, k_norm, eps), angles), rms(v, None, eps)


def attention(q, keys, values, position: int, window: int = 0, scale: float = 1.0):
    """Softmax attention of q [rows, heads, dim] over a ring [capacity, kv heads, dim]."""
    q, keys, values = (np.asarray(a, np.float64) for a in (q, keys, values))
    rows, heads, _ = q.shape
    capacity, kv_heads, _ = keys.shape
    out = np.empty_like(q)
    for r in range(rows):
        t = position + r
        first = max(0, t - window + 1) if window > 0 else 0
        slots = np.arange(first, t + 1) % capacity
        for h in range(heads):
            kv = h // (heads // kv_heads)
            s = keys[slots, kv] @ q[r, h] * scale
            p = np.exp(s - s.max())
            out[r, h] = (p / p.sum()) @ values[slots, kv]
    return out


def top_k(logits, k: int, expert_scale=None):
    """The k largest of each row, lower id first among equals, and softmax over them times scale."""
    logits = np.asarray(logits, np.float64)
    ids = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    chosen = np.take_along_axis(logits, ids, -1)
    e = np.exp(chosen - chosen.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True)
    if expert_scale is not None:
        weights = weights * bf16_float(expert_scale).astype(np.float64)[ids]
    return ids, weights


def router_logits(x, router_scale, router: Quantized, eps: float = 1e-6):
    """router * (rms(x) * router_scale * hidden^-1/2)."""
    return product(rms(x, router_scale, eps) * x.shape[-1] ** -0.5, router)


def post_attention_router(
    x, attention, post_attention, pre_dense, pre_routed, router_scale, expert_scale, router, k,
    eps: float = 1e-6,
):  # fmt: skip
    """The new x, dense_in, routed_in, ids and weights."""
    x = np.asarray(x, np.float64) + rms(attention, post_attention, eps)
    ids, weights = top_k(router_logits(x, router_scale, router, eps), k, expert_scale)
    return x, rms(x, pre_dense, eps), rms(x, pre_routed, eps), ids, weights


def expert(x, gate, up, down, activation: str = "gelu_tanh"):
    """down(act(gate x) * (up x))."""
    return product(ACTIVATIONS[activation](product(x, gate)) * product(x, up), down)


def layer_tail(
    x, shared, routed, post_shared, post_routed, post_layer, layer_scalar, weights=None,
    eps: float = 1e-6,
):  # fmt: skip
    """(x + rms(rms(shared) + rms(sum))) * scalar; routed is the sum, or weighted to give it."""
    routed = np.asarray(routed, np.float64)
    if weights is not None:
        routed = (routed * np.asarray(weights, np.float64)[..., None]).sum(1)
    total = rms(routed, post_routed, eps)
    layer = rms(rms(shared, post_shared, eps) + total, post_layer, eps)
    return (np.asarray(x, np.float64) + layer) * float(bf16_float(layer_scalar)[0])


def head_logits(x, norm, table: Quantized, softcap: float = 0.0, eps: float = 1e-6):
    """W rms(x, norm), softcapped if softcap > 0."""
    z = product(rms(x, norm, eps)[None], table)[0]
    return softcap * np.tanh(z / softcap) if softcap > 0 else z


def top_candidates(logits, count: int):
    """Ids and values of the `count` largest, lower id first, and log(sum(exp(logits)))."""
    logits = np.asarray(logits, np.float64)
    ids = np.argsort(-logits, kind="stable")[:count]
    top = logits.max()
    return ids, logits[ids], top + np.log(np.exp(logits - top).sum())
