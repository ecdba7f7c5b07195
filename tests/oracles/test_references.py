"""The operations' twins, which the devices are compared with, against the models' references."""

import numpy as np
import pytest

from tests.oracles import checkpoint, qwen36
from tests.reference import operations
from tests.reference.affine import Quantized
from tests.reference.qwen36 import HEAD, TRUNK

ROLES = ("gate_proj", "up_proj", "down_proj")


class Weights:
    """The tensors of a checkpoint below a prefix, as the operations take them."""

    def __init__(self, drawn: dict[str, tuple[str, np.ndarray]], prefix: str):
        self.drawn, self.prefix = drawn, prefix

    def __getitem__(self, name: str) -> np.ndarray:
        return self.drawn[self.prefix + name][1]

    def matrix(self, name: str, bits: int = 4) -> Quantized:
        packed = np.ascontiguousarray(self[name + ".weight"]).view(np.uint8)
        return Quantized(packed, self[name + ".scales"], self[name + ".biases"], bits, 64)

    def expert(self, name: str, expert: int) -> Quantized:
        q = self.matrix(name)
        return Quantized(q.weight[expert], q.scales[expert], q.biases[expert], q.bits, q.group)


def qwen36_attention(shape: qwen36.Shape, x, w: Weights):
    rows, dim, rotated = len(x), shape.head_dim, shape.head_dim // 8
    names = (f"self_attn.{letter}_proj" for letter in "qkv")
    both, k, v = operations.norm_project(x, w["input_layernorm.weight"], *map(w.matrix, names))
    q, gate = np.moveaxis(both.reshape(rows, shape.heads, 2, dim), 2, 0)
    k, v = (y.reshape(rows, shape.kv_heads, dim) for y in (k, v))
    angle = np.arange(rows)[:, None] * 1e7 ** (-np.arange(rotated) / rotated)
    q, k, v = operations.qkv_epilogue(
        q, k, v, w["self_attn.q_norm.weight"], w["self_attn.k_norm.weight"],
        np.stack([np.cos(angle), np.sin(angle)], -1), distance=rotated, norm_values=False,
    )  # fmt: skip
    out = operations.gate_heads(operations.attention(q, k, v, 0, scale=dim**-0.5), gate)
    return operations.product(out.reshape(rows, -1), w.matrix("self_attn.o_proj"))


def qwen36_recurrence(shape: qwen36.Shape, x, w: Weights, cuts: list[int]):
    """In chunks that end at `cuts`: state and tail go from one to the next."""
    a = operations.rms(x, w["input_layernorm.weight"])
    linear = Weights(w.drawn, w.prefix + "linear_attn.")
    u, z, alpha, beta = (
        np.split(operations.product(a, linear.matrix(f"in_proj_{name}")), cuts)
        for name in ("qkv", "z", "a", "b")
    )
    tail = np.zeros((3, u[0].shape[1]))
    state = np.zeros((shape.value_heads, shape.value_dim, shape.key_dim))
    rows = []
    for i in range(len(cuts) + 1):
        mixed, tail = operations.convolution(u[i], linear["conv1d.weight"][..., 0], tail)
        out, state = operations.gated_delta(
            mixed, alpha[i], beta[i], linear["A_log"], linear["dt_bias"], z[i],
            linear["norm.weight"], state, shape.key_heads,
        )  # fmt: skip
        rows.append(out)
    return operations.product(np.concatenate(rows), linear.matrix("out_proj"))


@pytest.mark.parametrize("name", qwen36.RANDOM)
def test_operations_in_order_give_the_logits_of_qwen36(tmp_path, name):
    seed, shape, _ = qwen36.RANDOM[name]
    checkpoint.write(tmp_path / "ckpt", shape, seed)
    tokens = list(range(5, 16))
    want = qwen36.FAMILY.reference(*checkpoint.read(tmp_path / "ckpt")).logits(tokens)

    tensors = checkpoint.Tensors(np.random.default_rng(seed))
    shape.draw(tensors)
    trunk = Weights(tensors.drawn, TRUNK)
    x = operations.embed_rows(trunk.matrix("embed_tokens"), tokens)
    for layer, kind in enumerate(shape.layers):
        w = Weights(tensors.drawn, f"{TRUNK}layers.{layer}.")
        if kind == "f":
            update = qwen36_attention(shape, x, w)
        else:
            update = qwen36_recurrence(shape, x, w, cuts=[2, 3])
        x, m, ids, weights = operations.residual_router(
            x, update, w["post_attention_layernorm.weight"], w.matrix("mlp.gate", 8), shape.top_k
        )
        shared = operations.gated_expert(
            m, *(w.matrix(f"mlp.shared_expert.{role}") for role in ROLES),
            w.matrix("mlp.shared_expert_gate", 8), "silu",
        )  # fmt: skip
        routed = np.empty((*ids.shape, shape.hidden))
        for (row, rank), expert in np.ndenumerate(ids):
            parts = (w.expert(f"mlp.switch_mlp.{role}", expert) for role in ROLES)
            routed[row, rank] = operations.expert(m[row : row + 1], *parts, "silu")[0]
        x = operations.residual_tail(x, shared, routed, weights)
    head = Weights(tensors.drawn, HEAD.removesuffix("lm_head.")).matrix("lm_head")
    got = [operations.head_logits(row, trunk["norm.weight"], head) for row in x]
    assert np.allclose(got, want, rtol=0, atol=1e-11)
