"""The suite's own float64 forward pass against mlx-lm, the reference implementation on Apple."""

import json

import numpy as np
import pytest

from tests.oracles import checkpoint
from tests.oracles.checkpoint import Shape
from tests.reference.gemma4 import Gemma4Reference

mx = pytest.importorskip("mlx.core", reason="`make test-all` installs mlx and mlx-lm")

pytestmark = [
    pytest.mark.slow,
    # mlx-lm and what it imports are not ours to keep free of warnings.
    pytest.mark.filterwarnings("ignore"),
]

SHAPES = {
    "default": Shape(),
    "many experts": Shape(layers="sssssfsssssf", experts=16, top_k=4, shards=3),
    "wide": Shape(layers="sf", hidden=192, width=128, window=8),
}


@pytest.mark.parametrize("name", SHAPES)
def test_float64_reference_agrees_with_mlx_lm_in_float32(tmp_path, name):
    from mlx_lm.utils import load_model

    directory = tmp_path / "ckpt"
    checkpoint.write(directory, SHAPES[name], seed=11)
    path = directory / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "quantization_config": config["quantization"]}))
    reference = Gemma4Reference(*checkpoint.read(directory))
    tokens, want = checkpoint.pick_tokens(reference, 40, seed=11)

    model, _ = load_model(directory)
    model.set_dtype(mx.float32)
    got = np.array(model(mx.array([tokens])))[0].astype(np.float64)
    assert np.abs(got - want).max() / np.abs(want).max() < 1e-4
    assert (got.argmax(-1) == want.argmax(-1)).all()
