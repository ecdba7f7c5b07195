"""mlx-lm, the reference implementation on Apple: against the suite's own float64 forward pass, and
how far its float16 is from it.
"""

import json

import numpy as np
import pytest

from tests.oracles import checkpoint
from tests.oracles.families import ALL

mx = pytest.importorskip("mlx.core", reason="`make test-all` installs mlx and mlx-lm")

pytestmark = [
    pytest.mark.slow,
    # mlx-lm and what it imports are not ours to keep free of warnings.
    pytest.mark.filterwarnings("ignore"),
]

CASES = [
    pytest.param(family, name, id=f"{family.name}-{name}")
    for family in ALL.values()
    for name in family.random
]


def write_for_mlx(directory, shape, seed):
    checkpoint.write(directory, shape, seed)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "quantization_config": config["quantization"]}))


def load(directory, dtype):
    from mlx_lm.utils import load_model

    model, config = load_model(directory)
    model.set_dtype(dtype)
    if config["model_type"] == "qwen3_5_moe":
        # It takes its masks from the cache of one layer of each kind, though there may be none.
        trunk, kinds = model.language_model.model, config["text_config"]["layer_types"]
        trunk.fa_idx = trunk.fa_idx if "full_attention" in kinds else None
        trunk.ssm_idx = trunk.ssm_idx if "linear_attention" in kinds else None
    return model


def error(got, want):
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize(("family", "name"), CASES)
def test_float64_reference_agrees_with_mlx_lm_in_float32(tmp_path, family, name):
    seed, shape, length = family.random[name]
    write_for_mlx(tmp_path / "ckpt", shape, seed)
    reference = family.reference(*checkpoint.read(tmp_path / "ckpt"))
    tokens, want = checkpoint.pick_tokens(reference, length, seed)
    model = load(tmp_path / "ckpt", mx.float32)
    got = np.array(model(mx.array([tokens])))[0].astype(np.float64)
    assert error(got, want) < 1e-4
    assert (got.argmax(-1) == want.argmax(-1)).all()


@pytest.fixture
def float32_sums(monkeypatch):
    """The CPU's products of mlx sum in the type of the activations, Apple's GPUs in float32."""

    def summing(product):
        def call(x, weight, scales, biases=None, *rest, **options):
            wide = [None if v is None else v.astype(mx.float32) for v in (scales, biases)]
            out = product(x.astype(mx.float32), weight, *wide, *rest, **options)
            return out.astype(x.dtype)

        return call

    for name in ("quantized_matmul", "gather_qmm"):
        monkeypatch.setattr(mx, name, summing(getattr(mx, name)))


@pytest.mark.usefixtures("float32_sums")
@pytest.mark.parametrize(("family", "name"), CASES)
def test_the_error_of_mlx_lm_in_float16_is_the_one_recorded(tmp_path, family, name):
    seed, shape, length = family.random[name]
    write_for_mlx(tmp_path / "ckpt", shape, seed)
    reference = family.reference(*checkpoint.read(tmp_path / "ckpt"))
    tokens, want = checkpoint.pick_tokens(reference, length, seed)
    model = load(tmp_path / "ckpt", mx.float16)
    cache = model.make_cache()
    steps = [tokens[:-8], *([token] for token in tokens[-8:])]
    got = [np.array(model(mx.array([step]), cache=cache)[0].astype(mx.float32)) for step in steps]
    measured = error(np.concatenate(got), want)
    assert measured == pytest.approx(family.mlx_float16[name], rel=0.25)
