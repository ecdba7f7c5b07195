"""Small installs for tests, written the way the format document's worked example is."""

import hashlib
from pathlib import Path

from mference.families.arch import Arch
from mference.store.directory import EXPERTS, LAYOUT, MANIFEST, RECEIPT, TOKENIZER, WEIGHTS
from mference.store.layout import (
    PIECE_NAMES,
    ExpertLayout,
    LayerLayout,
    Layout,
    SubTensor,
    encode_layout,
)
from mference.store.manifest import FileRecord, Manifest, QuantSlot, encode_manifest
from mference.store.receipt import TOOL_INSTALL, encode_receipt, new_receipt
from mference.store.resident import TensorSpec, encode_index, plan_index

HIDDEN, WIDTH, EXPERT_COUNT, STRIDE = 128, 64, 2, 16384
BITS = {"embedding": 4, "attention": 4, "router": 8, "sharedExpert": 8, "routedExpert": 4}
TRUNK = "language_model.model."


def toy_arch(layers: int = 1) -> Arch:
    """Gemma's architecture at the size of the worked example."""
    return Arch(
        hiddenSize=HIDDEN,
        ffnIntermediate=64,
        moeIntermediateSize=WIDTH,
        numHeads=2,
        numKVHeads=1,
        numFullKVHeads=1,
        headDim=64,
        fullHeadDim=64,
        vocabSize=128,
        slidingWindow=32,
        finalLogitSoftcap=30.0,
        ropeTheta=1e4,
        fullRopeTheta=1e6,
        partialRotaryFactor=0.25,
        numLayers=layers,
        numExperts=EXPERT_COUNT,
        topKExperts=1,
        tieWordEmbeddings=True,
        attentionKEqV=True,
        hiddenActivation="gelu_pytorch_tanh",
        fullAttentionLayerMask=(1,) * layers,
    )


def pattern(name: str, size: int) -> bytes:
    """The payload of a stored piece: byte i is (13 i + length of the name) mod 251."""
    return bytes((13 * i + len(name)) % 251 for i in range(size))


def resident_specs(layers: int = 1) -> list[TensorSpec]:
    """The worked example's resident tensors, in entry order."""
    specs = [TensorSpec(f"{TRUNK}embed_tokens.weight", "U32", (128, 128), 8192, 512, 512)]
    for layer in range(layers):
        prefix = f"{TRUNK}layers.{layer}."
        specs += [
            TensorSpec(f"{prefix}router.proj.weight", "U32", (2, 128), 256, 8, 8),
            TensorSpec(f"{prefix}input_layernorm.weight", "BF16", (128,), 256),
        ]
    return [*specs, TensorSpec(f"{TRUNK}norm.weight", "BF16", (128,), 256)]


def weights_bytes(layers: int = 1) -> bytes:
    """The whole `model_weights.bin`."""
    specs = resident_specs(layers)
    out = bytearray(encode_index(plan_index(specs)))
    for spec in specs:
        stem = spec.name.removesuffix(".weight")
        out += pattern(spec.name, spec.size)
        if spec.scale_size:
            out += pattern(f"{stem}.scales", spec.scale_size)
            out += pattern(f"{stem}.biases", spec.bias_size)
    return bytes(out)


def expert_pieces() -> dict[str, SubTensor]:
    """The nine pieces of one 4-bit expert, placed back to back."""
    pieces, at = {}, 0
    for name in PIECE_NAMES:
        rows, columns = (HIDDEN, WIDTH) if name.startswith("down") else (WIDTH, HIDDEN)
        if "_" in name:
            shape, size, dtype, bits = (rows, columns // 64), rows * columns // 32, "BF16", None
        else:
            shape, size, dtype, bits = (rows, columns), rows * columns // 2, "U32", 4
        pieces[name] = SubTensor(at, size, dtype, shape, bits)
        at += size
    return pieces


def layer_bytes() -> bytes:
    """One layer file: two padded experts."""
    pieces = expert_pieces()
    return b"".join(
        b"".join(pattern(f"{n}{e}", p.size) for n, p in pieces.items()).ljust(STRIDE, b"\0")
        for e in range(EXPERT_COUNT)
    )


def toy_layout(layers: int = 1) -> Layout:
    """The layout of a toy of that many layers."""
    experts = tuple(ExpertLayout(e * STRIDE, STRIDE, expert_pieces()) for e in range(EXPERT_COUNT))
    return Layout(
        STRIDE,
        layers,
        EXPERT_COUNT,
        tuple(LayerLayout(i, f"layer_{i:02d}.bin", experts) for i in range(layers)),
    )


def toy_files(layers: int = 1) -> dict[str, bytes]:
    """Every file of a toy except manifest and receipt."""
    files = {WEIGHTS: weights_bytes(layers), LAYOUT: encode_layout(toy_layout(layers))}
    files |= {f"{EXPERTS}/layer_{i:02d}.bin": layer_bytes() for i in range(layers)}
    names = ("config.json", "tokenizer.json", "tokenizer_config.json")
    return files | {f"{TOKENIZER}/{name}": b"{}" for name in names}


def toy_manifest(files: dict[str, bytes], layers: int = 1) -> Manifest:
    """The manifest of those files."""
    return Manifest(
        model_id="unknown/snapshot",
        arch=toy_arch(layers),
        files={
            name: FileRecord(len(data), hashlib.sha256(data).hexdigest())
            for name, data in files.items()
        },
        experts_per_layer=EXPERT_COUNT,
        num_layers=layers,
        expert_stride=STRIDE,
        quant={name: QuantSlot(bits, "affine", "BF16", "BF16", 64) for name, bits in BITS.items()},
        source_hash="sha256:" + "0" * 64,
        overrides_honored=1,
    )


def write_toy(root: Path, layers: int = 1, source: tuple[str, str] | None = None) -> Path:
    """Write a complete toy install, receipt included, and return its directory."""
    files = toy_files(layers)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    manifest = toy_manifest(files, layers)
    data = encode_manifest(manifest)
    (root / MANIFEST).write_bytes(data)
    receipt = new_receipt(root, data, manifest, TOOL_INSTALL, source)
    (root / RECEIPT).write_bytes(encode_receipt(receipt))
    return root
