"""Router selection against the reference system's recorded choices."""

import numpy as np
import pytest

from mference._core import ops
from tests.conformance.loader import cases
from tests.device.support import cpu, matrix
from tests.reference import affine, operations

GROUP = 64
PARTS = 4  # BF16 numbers, of which three would do to sum to any float32 number
LATER = (
    "router_full_softmax", "router_hash", "router_sigmoid_sinks", "router_sqrtsoftplus",
    "window_state",
)  # fmt: skip


def router_with_logits(logits) -> affine.Quantized:
    """A router that gives these logits for an input whose every group sums to one.

    Row e has codes of zero; its biases, one a group, are BF16 numbers that add up to logit e.
    """
    rest = np.asarray(logits, np.float32)
    biases = np.zeros((len(rest), PARTS), np.uint16)
    for i in range(PARTS):
        biases[:, i] = affine.bf16_bits(rest)
        rest = rest - affine.bf16_float(biases[:, i])
    weight = np.zeros((len(rest), PARTS * GROUP), np.uint8)
    return affine.Quantized(weight, np.zeros_like(biases), biases, 8, GROUP)


def route(device, logits, k: int):
    hidden = PARTS * GROUP
    x = np.zeros((1, hidden), np.float32)
    x[0, ::GROUP] = 1.0  # where rms(x) * hidden^-1/2 is x / |x| = 1/2
    ones, twos, none = (affine.bf16_bits(np.full(hidden, v)) for v in (1.0, 2.0, 0.0))
    unit = affine.bf16_bits(np.ones(len(logits)))
    *_, ids, weights = ops.post_attention_router(
        device, x, np.ones_like(x), none, ones, ones, twos, unit,
        matrix(router_with_logits(logits)), k, eps=0.0,
    )  # fmt: skip
    return ids[0], weights[0]


@pytest.mark.parametrize("case", cases("routing_kv", "router_softmax_topk"))
def test_router_softmax_topk(case):
    logits, k = case.given["logits"], case.given["k"]
    by_reference = operations.top_k(logits, k)
    for device in (cpu(), cpu("portable"), cpu(float32=True)):
        for ids, weights in (route(device, logits, k), by_reference):
            assert list(ids) == case.expect["experts"]
            assert np.abs(weights - case.expect["weights"]).max() <= case.expect["tolerance"]


@pytest.mark.skip(reason="family not built yet")
@pytest.mark.parametrize("case", cases("routing_kv", *LATER))
def test_routers_and_state_of_other_families(case):
    raise AssertionError(case.id)
