"""The random Gemma 4 checkpoints of the tests, and what float16 alone does to their logits."""

from tests.oracles.checkpoint import Shape

# Shapes: the default, many experts over several shards, only sliding layers and every expert
# chosen, layers in an unusual order, wider matrices, one expert a token, and more than a tile.
RANDOM = {
    "seed1": (1, Shape(), 56),
    "seed2": (2, Shape(layers="sssssfsssssf", experts=16, top_k=4, shards=3), 64),
    "seed3": (3, Shape(layers="ss", experts=8, top_k=8, window=32), 140),
    "seed4": (4, Shape(layers="fsf", window=24), 140),
    "seed5": (5, Shape(layers="sf", hidden=192, width=128, window=64), 140),
    "seed6": (6, Shape(layers="sfs", experts=24, top_k=1), 48),
    "seed7": (7, Shape(layers="sf", experts=24, top_k=12), 48),
}

# mlx-lm's error on each in float16, with the sums of its products in float32 as on Apple's GPUs:
# max |difference| from float64 / max |logit|, over a prompt and eight tokens after it. A GPU may
# differ by half as much again. `make test-all` measures them anew.
MLX_FLOAT16 = {
    "seed1": 0.0138,
    "seed2": 0.0191,
    "seed3": 0.00227,
    "seed4": 0.00436,
    "seed5": 0.00222,
    "seed6": 0.00381,
    "seed7": 0.00261,
}
