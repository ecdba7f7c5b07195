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


def sigmoid(u):
    """1 / (1 + exp(-u))."""
    return 1 / (1 + np.exp(-np.asarray(u, np.float64)))


def silu(u):
    """u / (1 + exp(-u))."""
    return u / (1 + np.exp(-u))


ACTIVATIONS = {"gelu_tanh": gelu_tanh, "silu": silu}


def rope(x, angles, distance: int | None = None):
    """Rotate pairs (i, i + distance) of x [rows, heads, dim] by cos, sin [rows, rotated, 2].

    Without a distance it is half of dim.
    """
    x = np.array(x, np.float64)
    far, rotated = distance or x.shape[-1] // 2, angles.shape[1]
    cos, sin = (np.asarray(angles, np.float64)[:, None, :, i] for i in (0, 1))
    lo, hi = x[..., :rotated].copy(), x[..., far : far + rotated].copy()
    x[..., :rotated] = lo * cos - hi * sin
    x[..., far : far + rotated] = lo * sin + hi * cos
    return x


def embed_rows(table: Quantized, tokens, scale: float = 1.0):
    """Rows `tokens` of the dequantized table, times scale."""
    return dequantize(table)[np.asarray(tokens)] * scale


def norm_project(x, norm, *matrices, eps: float = 1e-6):
    """Each matrix times rms(x, norm)."""
    a = rms(x, norm, eps)
    return tuple(product(a, m) for m in matrices)


def qkv_epilogue(
    q, k, v, q_norm, k_norm, angles, eps: float = 1e-6, *,
    distance: int | None = None, norm_values: bool = True,
):  # fmt: skip
    """Normed and rotated queries and keys, and normed or raw values, [rows, heads, dim] each."""
    q, k = (rope(rms(x, norm, eps), angles, distance) for x, norm in ((q, q_norm), (k, k_norm)))
    return q, k, rms(v, None, eps) if norm_values else np.asarray(v, np.float64)


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


def gate_heads(x, gate):
    """x * sigmoid(gate), element by element."""
    return np.asarray(x, np.float64) * sigmoid(gate)


def convolution(u, weight, tail):
    """silu of the causal depthwise convolution of u [rows, channels], and the new tail.

    weight [channels, taps], the last for the row itself; tail [taps - 1, channels], the raw rows
    before u, oldest first.
    """
    taps = bf16_float(weight).astype(np.float64)
    seen = np.concatenate([tail, u]).astype(np.float64)
    rows, before = len(u), len(tail)
    y = sum(seen[j : j + rows] * taps[:, j] for j in range(before + 1))
    return silu(y), seen[rows:]


def l2(x, eps: float = 1e-6):
    """x / sqrt(sum(x^2) + eps) over the last axis."""
    x = np.asarray(x, np.float64)
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps)


def gated_delta(
    mixed, alpha, beta, decay, dt_bias, z, norm, state, key_heads: int, eps: float = 1e-6
):
    """The gated delta rule over rows, then rms(y, norm) * silu(z): [rows, Hv * Dv], and the state.

    mixed [rows, 2 * key_heads * Dk + Hv * Dv] is q, k and v as the convolution gives them; alpha
    and beta [rows, Hv] are raw projections; decay [Hv] is A_log, BF16 bits or float32; state
    [Hv, Dv, Dk]. Value head h uses key head h // (Hv / key_heads).
    """
    mixed, alpha, state = (np.array(a, np.float64) for a in (mixed, alpha, state))
    rows, (heads, values, keys) = len(mixed), state.shape
    q, k, v = np.split(mixed, [key_heads * keys, 2 * key_heads * keys], axis=-1)
    share = heads // key_heads
    q = np.repeat(l2(q.reshape(rows, key_heads, keys), eps) * keys**-0.5, share, axis=1)
    k = np.repeat(l2(k.reshape(rows, key_heads, keys), eps), share, axis=1)
    v = v.reshape(rows, heads, values)
    decay = bf16_float(decay) if decay.dtype == np.uint16 else decay
    softplus = np.logaddexp(0, alpha + bf16_float(dt_bias))
    kept, beta = np.exp(-np.exp(decay.astype(np.float64)) * softplus), sigmoid(beta)
    y = np.empty((rows, heads, values))
    for r in range(rows):
        for h in range(heads):
            s = state[h] * kept[r, h]
            state[h] = s + beta[r, h] * np.outer(v[r, h] - s @ k[r, h], k[r, h])
            y[r, h] = state[h] @ q[r, h]
    z = np.asarray(z, np.float64).reshape(y.shape)
    return (rms(y, norm, eps) * silu(z)).reshape(rows, -1), state


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


def residual_router(x, update, norm, router: Quantized, k: int, eps: float = 1e-6):
    """x + update, m = rms of it, and ids and weights of the k experts that router m prefers."""
    x = np.asarray(x, np.float64) + update
    m = rms(x, norm, eps)
    return x, m, *top_k(product(m, router), k)


def expert(x, gate, up, down, activation: str = "gelu_tanh"):
    """down(act(gate x) * (up x))."""
    return product(ACTIVATIONS[activation](product(x, gate)) * product(x, up), down)


def gated_expert(x, gate, up, down, scalar_gate: Quantized, activation: str = "silu"):
    """sigmoid(scalar_gate x) * expert(x); scalar_gate has one row."""
    return sigmoid(product(x, scalar_gate)) * expert(x, gate, up, down, activation)


def routed_sum(routed, weights=None):
    """The sum of a row's experts: routed itself, or [rows, k, hidden] weighted by [rows, k]."""
    routed = np.asarray(routed, np.float64)
    if weights is None:
        return routed
    return (routed * np.asarray(weights, np.float64)[..., None]).sum(1)


def layer_tail(
    x, shared, routed, post_shared, post_routed, post_layer, layer_scalar, weights=None,
    eps: float = 1e-6,
):  # fmt: skip
    """(x + rms(rms(shared) + rms(sum))) * scalar; routed is the sum, or weighted to give it."""
    total = rms(routed_sum(routed, weights), post_routed, eps)
    layer = rms(rms(shared, post_shared, eps) + total, post_layer, eps)
    return (np.asarray(x, np.float64) + layer) * float(bf16_float(layer_scalar)[0])


def residual_tail(x, shared, routed, weights=None):
    """x + (the sum of the routed experts + shared); routed as in `routed_sum`."""
    return np.asarray(x, np.float64) + (routed_sum(routed, weights) + shared)


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
