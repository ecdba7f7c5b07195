"""Logits, the greedy token, and candidates for sampling."""

import numpy as np
import pytest

from mference._core import ops
from mference.errors import DeviceError
from tests.device.support import HIDDEN, INT16, matrix, norm_weight, rows
from tests.reference import affine, operations


def head_case(vocabulary, cols, seed=1):
    rng = np.random.default_rng(seed)
    x = rows(rng, 1, cols)[0]
    return x, norm_weight(rng, cols), affine.random_matrix(rng, vocabulary, cols)


@pytest.mark.parametrize(("vocabulary", "cols"), [(3001, HIDDEN), (600, 64), (1, 128)])
@pytest.mark.parametrize("softcap", [0.0, 30.0, 0.5])
def test_head_logits(check, vocabulary, cols, softcap):
    x, norm, table = head_case(vocabulary, cols)
    check(
        lambda d: ops.head_logits(d, x, norm, matrix(table), softcap, misalign=2),
        operations.head_logits(x, norm, table, softcap),
    )


@pytest.mark.parametrize(("vocabulary", "cols"), [(3001, HIDDEN), (600, 64), (1, 128)])
def test_head_argmax(devices, vocabulary, cols):
    x, norm, table = head_case(vocabulary, cols)
    expected = int(operations.head_logits(x, norm, table).argmax())
    for device in devices:
        assert ops.head_argmax(device, x, norm, matrix(table), misalign=2) == expected


def test_equal_logits_give_the_lowest_token_wherever_work_is_split(devices):
    x, norm, table = head_case(40, 128)
    best = int(operations.head_logits(x, norm, table).argmax())
    order = np.full(2000, (best + 1) % 40)
    order[[517, 1023, 1024, 1999]] = best
    repeated = affine.Quantized(
        table.weight[order], table.scales[order], table.biases[order], 4, 64
    )
    for device in devices:
        assert ops.head_argmax(device, x, norm, matrix(repeated)) == 517


def test_a_head_without_a_single_number_is_an_error_and_not_token_0(devices):
    x, norm, table = head_case(40, 128)
    x[3] = np.nan
    for device in devices:
        with pytest.raises(DeviceError, match=r"HeadArgmax.*corrupt"):
            ops.head_argmax(device, x, norm, matrix(table))


@pytest.mark.slow
def test_the_whole_head(devices):
    x, norm, table = head_case(262144, HIDDEN)
    expected = np.concatenate([
        operations.head_logits(x, norm, affine.Quantized(
            table.weight[i : i + 16384], table.scales[i : i + 16384],
            table.biases[i : i + 16384], 4, 64))
        for i in range(0, 262144, 16384)
    ])  # fmt: skip
    for device in devices:
        z = ops.head_logits(device, x, norm, matrix(table), misalign=2)
        assert np.abs(z - expected).max() <= INT16 * np.abs(expected).max()
        assert ops.head_argmax(device, x, norm, matrix(table), misalign=2) == z.argmax()


@pytest.mark.parametrize(
    ("vocabulary", "count"),
    [(262144, 256), (262144, 1), (8192, 64), (100, 100), (64, 5), (65, 65), (1, 1)],
)
def test_top_candidates(check, vocabulary, count):
    rng = np.random.default_rng(vocabulary + count)
    logits = (rng.standard_normal(vocabulary) * 5).astype(np.float32)
    check(
        lambda d: ops.top_candidates(d, logits, count),
        operations.top_candidates(logits, count),
        int16=1e-6,
        float32=1e-6,
    )


def test_candidates_with_ties_come_in_ascending_id(devices):
    rng = np.random.default_rng(2)
    logits = rng.integers(0, 4, 5000).astype(np.float32)
    for logits_of in (logits, np.zeros(5000, np.float32)):
        expected, values, _ = operations.top_candidates(logits_of, 200)
        for device in devices:
            ids, got, _ = ops.top_candidates(device, logits_of, 200)
            assert np.array_equal(ids, expected)
            assert np.array_equal(got, values)


def test_log_sum_does_not_overflow(devices):
    logits = np.array([1000, 999, -1000, 1000], np.float32)
    for device in devices:
        *_, log_sum = ops.top_candidates(device, logits, 2)
        assert log_sum == pytest.approx(1000 + np.log(2 + np.exp(-1)), rel=1e-6)


def test_candidates_refuse_what_cannot_be_chosen(devices):
    with pytest.raises(DeviceError, match=r"TopCandidates\.count"):
        ops.top_candidates(devices[0], np.zeros(4, np.float32), 5)
    with pytest.raises(DeviceError, match="corrupt"):
        ops.top_candidates(devices[0], np.full(4, np.nan, np.float32), 2)
