"""What carries a state from token to token, and the gates beside it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mference._core import ops
from mference.errors import DeviceError
from tests.device.support import GPU_FLOAT32, error, norm_weight
from tests.reference import affine, operations

FLOAT_SUMS = 2e-6  # neither operation quantizes its inputs
STATE = 5e-6  # of the delta rule, whose products lose a little of each other's digits
LONG = 2e-5  # after hundreds of tokens


def convolved(x, weight, tail):
    """Row by row, since a row enters those after it as the tail holds it."""
    out = []
    for row in x:
        y, seen = operations.convolution(row[None], weight, tail)
        tail = seen.astype(tail.dtype)
        out.append(y[0])
    return np.stack(out), tail


def convolution_case(seed, rows, channels, taps, dtype):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, channels)) * 3).astype(np.float32)
    weight = affine.bf16_bits(rng.standard_normal((channels, taps)))
    return x, weight, rng.standard_normal((taps - 1, channels)).astype(dtype)


@pytest.mark.parametrize(
    ("rows", "channels", "taps"),
    [(1, 8192, 4), (1, 50, 4), (2, 50, 4), (3, 50, 4), (16, 50, 4), (17, 530, 4), (131, 530, 4),
     (5, 40, 2), (4, 40, 8), (21, 40, 8)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_convolution(check, rows, channels, taps, dtype):
    x, weight, tail = convolution_case(rows, rows, channels, taps, dtype)
    check(
        lambda d: ops.convolution_tail(d, x, weight, tail, misalign=2),
        convolved(x, weight, tail),
        int16=FLOAT_SUMS,
    )


@pytest.mark.parametrize("taps", [2, 4, 8])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_chunk_convolves_as_its_rows_one_after_another(devices, taps, dtype):
    x, weight, start = convolution_case(7, 40, 70, taps, dtype)
    for device in devices:
        together, after = ops.convolution_tail(device, x, weight, start)
        for ends in (range(1, 41), (2, 3, 20, 40), (17, 35, 40)):
            tail, first, parts = start, 0, []
            for end in ends:
                out, tail = ops.convolution_tail(device, x[first:end], weight, tail)
                parts.append(out)
                first = end
            assert np.array_equal(np.concatenate(parts), together)
            assert np.array_equal(tail, after)


def test_convolutions_that_do_not_fit_are_refused(devices):
    device = devices[0]
    x, weight, tail = convolution_case(1, 3, 32, 4, np.float16)
    with pytest.raises(DeviceError, match=r"ConvolutionTail\.tail: the view holds"):
        ops.convolution_tail(device, x, weight, tail[:2])
    with pytest.raises(DeviceError, match=r"ConvolutionTail\.weight: the view holds"):
        ops.convolution_tail(device, x, weight[:31], tail)
    with pytest.raises(DeviceError, match="no channels"):
        ops.convolution_tail(device, x[:, :0], weight, tail)
    for taps in (1, 9):
        with pytest.raises(DeviceError, match="2 to 8 taps"):
            ops.convolution_tail(device, x, np.zeros((32, taps), np.uint16), tail)


@dataclass(frozen=True)
class Delta:
    """The inputs of the delta rule."""

    mixed: NDArray[np.float32]
    alpha: NDArray[np.float32]
    beta: NDArray[np.float32]
    rate: NDArray[np.float32]
    dt_bias: NDArray[np.float32]
    z: NDArray[np.float32]
    norm: NDArray[np.uint16]
    state: NDArray[np.float32]
    key_heads: int

    def run(self, device):
        return ops.gated_delta(
            device, self.mixed, self.alpha, self.beta, self.rate, self.dt_bias, self.z, self.norm,
            self.state, self.key_heads, misalign=2,
        )  # fmt: skip

    def expected(self):
        return operations.gated_delta(
            self.mixed, self.alpha, self.beta, np.log(self.rate.astype(np.float64)),
            affine.bf16_bits(self.dt_bias), self.z, self.norm, self.state, self.key_heads,
        )  # fmt: skip

    def some(self, first, last, state):
        """Rows [first, last) from another state."""
        rows = {name: getattr(self, name)[first:last] for name in ("mixed", "alpha", "beta", "z")}
        return replace(self, state=state, **rows)


def delta_case(seed, rows, key_heads, value_heads, key_dim, value_dim) -> Delta:
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    return Delta(
        normal(rows, 2 * key_heads * key_dim + value_heads * value_dim),
        normal(rows, value_heads),
        normal(rows, value_heads),
        rng.uniform(0.02, 2, value_heads).astype(np.float32),
        affine.bf16_float(affine.bf16_bits(normal(value_heads))),
        normal(rows, value_heads, value_dim),
        norm_weight(rng, value_dim),
        normal(value_heads, value_dim, key_dim),
        key_heads,
    )


@pytest.mark.parametrize(
    ("rows", "key_heads", "value_heads", "key_dim", "value_dim"),
    [(1, 16, 32, 128, 128), (1, 2, 4, 64, 64), (2, 1, 3, 32, 96), (3, 2, 2, 256, 32),
     (40, 1, 2, 160, 224), (9, 3, 6, 128, 256)],
)  # fmt: skip
def test_delta_rule(check, rows, key_heads, value_heads, key_dim, value_dim):
    case = delta_case(rows, rows, key_heads, value_heads, key_dim, value_dim)
    check(case.run, case.expected(), int16=STATE, float32=STATE)


def test_the_delta_rule_stays_right_over_many_tokens(check):
    case = delta_case(5, 600, 1, 2, 64, 32)
    case = replace(case, state=np.zeros_like(case.state))
    check(case.run, case.expected(), int16=LONG, float32=LONG, gpu=LONG)


@pytest.mark.parametrize(
    ("key_heads", "value_heads", "key_dim", "value_dim"), [(1, 2, 128, 32), (2, 2, 96, 64)]
)
def test_a_chunk_of_the_delta_rule_is_its_rows_one_after_another(
    devices, key_heads, value_heads, key_dim, value_dim
):
    case = delta_case(6, 21, key_heads, value_heads, key_dim, value_dim)
    for device in devices:
        together, after = case.run(device)
        for ends in (range(1, 22), (2, 18, 21)):
            state, first, parts = case.state, 0, []
            for end in ends:
                out, state = case.some(first, end, state).run(device)
                parts.append(out)
                first = end
            assert np.array_equal(np.concatenate(parts), together)
            assert np.array_equal(state, after)


def test_queries_and_keys_near_zero_are_normalized_with_epsilon_on_the_sum(check):
    case = delta_case(7, 4, 2, 2, 64, 32)
    case.mixed[0, : 2 * 64] *= 1e-4  # a sum of squares near epsilon
    case.mixed[1, 2 * 64 : 4 * 64] *= 1e-4
    case.mixed[2, : 4 * 64] *= 1e-6
    case.mixed[3, : 4 * 64] = 0
    expected = case.expected()
    assert not expected[0][3].any()
    check(case.run, expected, int16=STATE, float32=STATE)


@pytest.mark.parametrize("alpha", [-1e4, -90.0, 90.0, 1e4])
@pytest.mark.parametrize("beta", [-200.0, 200.0])
def test_decays_and_rates_reach_their_ends(check, alpha, beta):
    case = delta_case(8, 3, 1, 2, 32, 32)
    case.alpha[1], case.beta[1] = alpha, beta
    check(case.run, case.expected(), int16=STATE, float32=STATE)


def test_small_decays_add_up(check):
    """A decay of 1 - 1e-5 a token, as a head that remembers has it: softplus keeps its digits."""
    case = delta_case(9, 600, 1, 2, 32, 32)
    case.alpha[:], case.beta[:] = -12.0, -200.0  # nothing is written
    case = replace(case, rate=np.array([2, 1], np.float32), dt_bias=np.zeros(2, np.float32))
    out, state = case.expected()
    assert 1e-3 < 1 - abs(state / case.state).max() < 1e-2
    check(case.run, (out, state), int16=LONG, float32=LONG, gpu=LONG)


def test_delta_rules_that_do_not_fit_are_refused(devices):
    case = delta_case(10, 2, 2, 4, 64, 32)

    def refused(match, **changes):
        with pytest.raises(DeviceError, match=match):
            replace(case, **changes).run(devices[0])

    refused("multiple of the key heads", key_heads=3)
    refused("multiple of the key heads", key_heads=0)
    for shape in ((4, 32, 48), (4, 48, 64), (4, 32, 288), (4, 0, 64)):
        refused("multiples of 32 up to 256", state=np.zeros(shape, np.float32))
    refused(r"GatedDelta\.mixed: the view holds", mixed=case.mixed[:, :-1])
    refused(r"GatedDelta\.alpha: the view holds", alpha=case.alpha[:1])
    refused(r"GatedDelta\.beta: the view holds", beta=case.beta[:, :3])
    refused(r"GatedDelta\.rate: the view holds", rate=case.rate[:3])
    refused(r"GatedDelta\.dt_bias: the view holds", dt_bias=case.dt_bias[:3])
    refused(r"GatedDelta\.z: the view holds", z=case.z[:1])
    refused(r"GatedDelta\.norm: the view holds", norm=case.norm[:31])


@pytest.mark.parametrize(
    ("rows", "heads", "dim", "width"), [(1, 16, 256, 512), (3, 3, 40, 40), (5, 2, 24, 31)]
)
def test_gates_of_heads(check, rows, heads, dim, width):
    rng = np.random.default_rng(dim)
    x = rng.standard_normal((rows, heads, dim)).astype(np.float32)
    gate = (rng.standard_normal((rows, heads, width)) * 4).astype(np.float32)
    gate[0, 0, -2:] = -200, 200
    check(
        lambda d: ops.gate_heads(d, x, gate),
        operations.gate_heads(x, gate[..., -dim:]),
        int16=FLOAT_SUMS,
        gpu=GPU_FLOAT32,
    )


def test_gates_that_do_not_fit_are_refused(devices):
    x = np.zeros((2, 2, 32), np.float32)
    with pytest.raises(DeviceError, match="GateHeads"):
        ops.gate_heads(devices[0], x, x[..., :31])
    with pytest.raises(DeviceError, match=r"GateHeads\.gate: the view holds"):
        ops.gate_heads(devices[0], x, x[:1])


def test_a_closed_gate_leaves_nothing(devices):
    x, gate = np.full((1, 1, 32), 3.0, np.float32), np.full((1, 1, 32), -1e4, np.float32)
    for device in devices:
        assert not ops.gate_heads(device, x, gate).any()
        assert error(ops.gate_heads(device, x, -gate), x) == 0
