"""Source checkpoints of the families at full size and small: configs, names, dtypes, shapes.

They are written from what is known of the published checkpoints, not from the package's rules.
"""

import json
import zlib
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mference.families import maple
from mference.families.arch import Arch
from mference.families.family import Family
from tests.installer.toys import Shapes, source_tensors

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen36": {
        "model_type": "qwen3_5_moe",
        "text_config": {
            "hidden_size": 2048,
            "num_hidden_layers": 40,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "attn_output_gate": True,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "vocab_size": 248320,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
            "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
        },
    },
    "deepseekV4Flash": {
        "model_type": "deepseek_v4",
        "hidden_size": 4096,
        "num_hidden_layers": 43,
        "vocab_size": 129280,
        "num_attention_heads": 64,
        "num_key_value_heads": 1,
        "head_dim": 512,
        "qk_rope_head_dim": 64,
        "q_lora_rank": 1024,
        "o_groups": 8,
        "o_lora_rank": 1024,
        "sliding_window": 128,
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 512,
        "rope_theta": 10000,
        "compress_rope_theta": 160000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 16,
            "original_max_position_embeddings": 65536,
            "beta_fast": 32,
            "beta_slow": 1,
        },
        "n_routed_experts": 256,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 2048,
        "num_hash_layers": 3,
        "scoring_func": "sqrtsoftplus",
        "routed_scaling_factor": 1.5,
        "swiglu_limit": 10.0,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
    "inklingSmall": {
        "model_type": "inkling_mm_model",
        "text_config": {
            "hidden_size": 4096,
            "num_hidden_layers": 42,
            "vocab_size": 201024,
            "unpadded_vocab_size": 200058,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "swa_head_dim": 128,
            "sliding_window_size": 512,
            "d_rel": 16,
            "rel_extent": 1024,
            "log_scaling_n_floor": 128000,
            "log_scaling_alpha": 0.1,
            "use_sconv": True,
            "sconv_kernel_size": 4,
            "dense_mlp_idx": 2,
            "dense_intermediate_size": 16384,
            "intermediate_size": 2048,
            "n_routed_experts": 256,
            "num_experts_per_tok": 6,
            "n_shared_experts": 2,
            "shared_expert_sink": True,
            "gate_activation": "sigmoid",
            "use_gate_bias": True,
            "norm_after_topk": True,
            "use_global_scale": True,
            "route_scale": 8.0,
            "use_embed_norm": True,
            "logits_mup_width_multiplier": 16.0,
        },
        "quantization": {"group_size": 64, "bits": 4, "recipe": "uniform"},
    },
    "maple": {
        "model_type": "maple",
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "sliding_window": 512,
        "rope_theta": 10000,
        "partial_rotary_factor": 0.5,
        "max_position_embeddings": 128000,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "num_shared_experts": 0,
        "first_k_dense_replace": 0,
        "moe_shared_expert_intermediate_size": 512,
        "norm_topk_prob": True,
        "router_dtype": "fp32",
        "hidden_act": "silu",
        "use_qk_norm": True,
        "use_rmsnorm": True,
        "use_bias": False,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "quantization": {
            "bits": 2,
            "group_size": 128,
            "mode": "affine",
            "model.word_embeddings": {"bits": 4, "group_size": 64},
            "lm_head": {"bits": 4, "group_size": 64},
        },
        "flash_head": {
            "n_clusters": 4748,
            "cluster_size": 32,
            "n_probes": 512,
            "group_size": 64,
            "bits": 4,
            "head_group_size": 64,
            "head_bits": 4,
            "scaled_centroids": True,
            "force_tokens": [151645, 151668, 151643],
        },
    },
}

SMALL: dict[str, dict[str, Any]] = {
    "qwen36": {
        "hidden_size": 128,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "vocab_size": 192,
    },
    "deepseekV4Flash": {
        # With these widths, finer groups on some layers need another page.
        "hidden_size": 192,
        "num_hidden_layers": 6,
        "vocab_size": 192,
        "num_attention_heads": 4,
        "head_dim": 64,
        "qk_rope_head_dim": 8,
        "q_lora_rank": 64,
        "o_groups": 2,
        "o_lora_rank": 64,
        "sliding_window": 24,
        "index_n_heads": 16,
        "index_head_dim": 64,
        "index_topk": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 448,
    },
    "inklingSmall": {
        "hidden_size": 128,
        "num_hidden_layers": 6,
        "vocab_size": 192,
        "unpadded_vocab_size": 181,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "swa_head_dim": 64,
        "sliding_window_size": 8,
        "rel_extent": 12,
        "log_scaling_n_floor": 10,
        "dense_intermediate_size": 256,
        "intermediate_size": 64,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
    },
    "maple": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 192,
        "sliding_window": 8,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "moe_shared_expert_intermediate_size": 64,
    },
}

FAMILY_NAMES = tuple(CONFIGS)


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The part of a config that has the architecture."""
    return config.get("text_config", config)


def full_config(family: str) -> dict[str, Any]:
    """The config.json of a family's published checkpoint."""
    config = deepcopy(CONFIGS[family])
    _complete(family, config)
    return config


def small_config(family: str) -> dict[str, Any]:
    """A config.json of the same kind at a small size."""
    config = deepcopy(CONFIGS[family])
    text_config(config).update(SMALL[family])
    if family == "maple":
        config["flash_head"] |= {"n_clusters": 48, "cluster_size": 4, "n_probes": 6}
        config["flash_head"]["force_tokens"] = [1, 3, 0]
    _complete(family, config)
    return config


def _complete(family: str, config: dict[str, Any]) -> None:
    """Add what has an entry a layer."""
    text = text_config(config)
    layers = range(text["num_hidden_layers"])
    match family:
        case "qwen36":
            text["layer_types"] = [
                "full_attention" if i % 4 == 3 else "linear_attention" for i in layers
            ]
            stems = [f"language_model.model.layers.{i}.mlp" for i in layers]
            config["quantization"] = {"bits": 4, "group_size": 64, "mode": "affine"} | {
                f"{stem}.{name}": {"bits": 8, "group_size": 64}
                for stem in stems
                for name in ("gate", "shared_expert_gate")
            }
        case "deepseekV4Flash":
            # The published list has one entry more, for a layer that the checkpoint lacks.
            text["compress_ratios"] = [0, 0, *(4 if i % 2 == 0 else 128 for i in layers[2:]), 0]
            config["quantization"] = {"bits": 4, "group_size": 64, "mode": "affine"} | {
                f"model.layers.{i}.ffn.switch_mlp.{role}_proj": {
                    "bits": 2,
                    "group_size": 32 if role == "gate" and i != layers[-1] else 64,
                }
                for i in layers
                for role in ("gate", "up", "down")
            }
        case "inklingSmall":
            text["local_layer_ids"] = [i for i in layers if i % 6 != 5]
        case "maple":
            text["layer_types"] = [
                "full_attention" if i % 4 == 3 else "sliding_attention" for i in layers
            ]


def small_maple() -> Family:
    """Maple with the small config's architecture as its pinned one: it accepts no other."""
    small = SMALL["maple"]
    arch = Arch(
        **{
            **maple.BASELINE,
            "hiddenSize": small["hidden_size"],
            "ffnIntermediate": small["moe_shared_expert_intermediate_size"],
            "moeIntermediateSize": small["moe_intermediate_size"],
            "numHeads": small["num_attention_heads"],
            "numKVHeads": small["num_key_value_heads"],
            "numFullKVHeads": small["num_key_value_heads"],
            "headDim": small["head_dim"],
            "fullHeadDim": small["head_dim"],
            "vocabSize": small["vocab_size"],
            "slidingWindow": small["sliding_window"],
            "numLayers": small["num_hidden_layers"],
            "numExperts": small["num_experts"],
            "topKExperts": small["num_experts_per_tok"],
            "fullAttentionLayerMask": (0, 0, 0, 1),
            "attentionScale": 0.125,
        }
    )
    rules = maple.FAMILY.rules
    assert rules is not None
    rules = replace(rules, read_arch=partial(maple.read_arch, pinned=arch))
    return replace(maple.FAMILY, baseline=arch, rules=rules)


class _Shapes:
    """Collects names with their dtypes and stored shapes."""

    def __init__(self) -> None:
        self.found: Shapes = {}

    def plain(self, name: str, *shape: int, dtype: str = "BF16") -> None:
        self.found[name] = (dtype, shape)

    def packed(self, stem: str, *shape: int, bits: int = 4, group: int = 64) -> None:
        self.plain(f"{stem}.weight", *shape[:-1], shape[-1] * bits // 32, dtype="U32")
        for suffix in ("scales", "biases"):
            self.plain(f"{stem}.{suffix}", *shape[:-1], shape[-1] // group)

    def ternary(self, stem: str, *shape: int) -> None:
        self.plain(f"{stem}.weight", *shape[:-1], shape[-1] // 16, dtype="U32")
        self.plain(f"{stem}.row_alpha", *shape[:-1])


def checkpoint_shapes(config: dict[str, Any]) -> Shapes:
    """Every tensor of the checkpoint that a config describes: dtype and stored shape."""
    write = {
        "qwen3_5_moe": _qwen36,
        "deepseek_v4": _deepseek,
        "inkling_mm_model": _inkling,
        "maple": _maple,
    }
    shapes = _Shapes()
    write[config["model_type"]](shapes, text_config(config), config["quantization"])
    return shapes.found


def _qwen36(s: _Shapes, c: dict[str, Any], _: dict[str, Any]) -> None:
    d, experts, width = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
    heads, kv, head = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    value_heads = c["linear_num_value_heads"]
    values = value_heads * c["linear_value_head_dim"]
    s.plain("vision_tower.patch_embed.proj.weight", 8, 3)
    s.packed("language_model.model.embed_tokens", c["vocab_size"], d)
    for i, kind in enumerate(c["layer_types"]):
        p = f"language_model.model.layers.{i}"
        if kind == "full_attention":
            s.packed(f"{p}.self_attn.q_proj", 2 * heads * head, d)
            s.packed(f"{p}.self_attn.k_proj", kv * head, d)
            s.packed(f"{p}.self_attn.v_proj", kv * head, d)
            s.packed(f"{p}.self_attn.o_proj", d, heads * head)
            s.plain(f"{p}.self_attn.q_norm.weight", head)
            s.plain(f"{p}.self_attn.k_norm.weight", head)
        else:
            s.packed(f"{p}.linear_attn.in_proj_qkv", 2 * keys + values, d)
            s.packed(f"{p}.linear_attn.in_proj_z", values, d)
            s.packed(f"{p}.linear_attn.in_proj_a", value_heads, d)
            s.packed(f"{p}.linear_attn.in_proj_b", value_heads, d)
            s.plain(f"{p}.linear_attn.conv1d.weight", 2 * keys + values, 4, 1)
            s.plain(f"{p}.linear_attn.A_log", value_heads)
            s.plain(f"{p}.linear_attn.dt_bias", value_heads)
            s.plain(f"{p}.linear_attn.norm.weight", c["linear_value_head_dim"])
            s.packed(f"{p}.linear_attn.out_proj", d, values)
        s.packed(f"{p}.mlp.gate", experts, d, bits=8)
        s.packed(f"{p}.mlp.shared_expert_gate", 1, d, bits=8)
        shared = c["shared_expert_intermediate_size"]
        for role, shape in _roles(shared, d):
            s.packed(f"{p}.mlp.shared_expert.{role}_proj", *shape)
        for role, shape in _roles(width, d):
            s.packed(f"{p}.mlp.switch_mlp.{role}_proj", experts, *shape)
        s.plain(f"{p}.input_layernorm.weight", d)
        s.plain(f"{p}.post_attention_layernorm.weight", d)
    s.plain("language_model.model.norm.weight", d)
    s.packed("language_model.lm_head", c["vocab_size"], d)


def _deepseek(s: _Shapes, c: dict[str, Any], quantization: dict[str, Any]) -> None:
    d, experts, width = c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
    heads, head, rank = c["num_attention_heads"], c["head_dim"], c["q_lora_rank"]
    groups, out, vocab = c["o_groups"], c["o_lora_rank"], c["vocab_size"]
    streams, index = c["hc_mult"], c["index_head_dim"]

    def hyper(stem: str, rows: int, scales: int) -> None:
        s.plain(f"{stem}.fn", rows, streams * d, dtype="F32")
        s.plain(f"{stem}.base", rows, dtype="F32")
        s.plain(f"{stem}.scale", scales, dtype="F32")

    def compressor(stem: str, size: int, rate: int, columns: int) -> None:
        s.packed(f"{stem}.wkv", columns, d)
        s.packed(f"{stem}.wgate", columns, d)
        s.plain(f"{stem}.norm.weight", size)
        s.plain(f"{stem}.ape", rate, columns)

    s.packed("model.embed_tokens", vocab, d)
    for i, ratio in enumerate(c["compress_ratios"][: c["num_hidden_layers"]]):
        p = f"model.layers.{i}"
        s.plain(f"{p}.attn_norm.weight", d)
        s.plain(f"{p}.ffn_norm.weight", d)
        s.packed(f"{p}.attn.wq_a", rank, d)
        s.packed(f"{p}.attn.wq_b", heads * head, rank)
        s.plain(f"{p}.attn.q_norm.weight", rank)
        s.plain(f"{p}.attn.kv_norm.weight", head)
        s.packed(f"{p}.attn.wkv", head, d)
        s.plain(f"{p}.attn.attn_sink", heads, dtype="F32")
        s.packed(f"{p}.attn.wo_a", groups, out, heads * head // groups)
        s.packed(f"{p}.attn.wo_b", d, groups * out)
        if ratio:
            compressor(f"{p}.attn.compressor", head, ratio, head * (2 if ratio == 4 else 1))
        if ratio == 4:
            compressor(f"{p}.attn.indexer.compressor", index, ratio, 2 * index)
            s.packed(f"{p}.attn.indexer.wq_b", c["index_n_heads"] * index, rank)
            s.packed(f"{p}.attn.indexer.weights_proj", c["index_n_heads"], d)
        hyper(f"{p}.attn_hc", (2 + streams) * streams, 3)
        hyper(f"{p}.ffn_hc", (2 + streams) * streams, 3)
        s.plain(f"{p}.ffn.gate.weight", experts, d)
        if i < c["num_hash_layers"]:
            s.plain(f"{p}.ffn.gate.tid2eid", vocab, c["num_experts_per_tok"], dtype="I64")
        else:
            s.plain(f"{p}.ffn.gate.e_score_correction_bias", experts, dtype="F32")
        for role, shape in _roles(width, d):
            s.packed(f"{p}.ffn.shared_experts.{role}_proj", *shape)
            stem = f"{p}.ffn.switch_mlp.{role}_proj"
            s.packed(stem, experts, *shape, bits=2, group=quantization[stem]["group_size"])
    hyper("model.hc_head", streams, 1)
    s.plain("model.norm.weight", d)
    s.packed("lm_head", vocab, d)


def _inkling(s: _Shapes, c: dict[str, Any], _: dict[str, Any]) -> None:
    d, experts, width = c["hidden_size"], c["n_routed_experts"], c["intermediate_size"]
    heads, kv, head = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    shared, taps = c["n_shared_experts"], c["sconv_kernel_size"]
    s.plain("model.visual.proj.weight", 8, 3)
    s.plain("model.audio.proj.weight", 8, 3)
    s.packed("model.llm.embed", c["vocab_size"], d)
    s.plain("model.llm.embed_norm.weight", d)
    for i in range(c["num_hidden_layers"]):
        p = f"model.llm.layers.{i}"
        s.packed(f"{p}.attn.wq_du", heads * head, d)
        s.packed(f"{p}.attn.wk_dv", kv * head, d)
        s.packed(f"{p}.attn.wv_dv", kv * head, d)
        s.packed(f"{p}.attn.wo_ud", d, heads * head)
        s.packed(f"{p}.attn.wr_du", heads * c["d_rel"], d)
        extent = c["sliding_window_size" if i in c["local_layer_ids"] else "rel_extent"]
        s.plain(f"{p}.attn.rel_logits_proj.proj", c["d_rel"], extent)
        for name in ("q_norm", "k_norm"):
            s.plain(f"{p}.attn.{name}.weight", head)
        for name in ("k_sconv", "v_sconv"):
            s.plain(f"{p}.attn.{name}.weight", kv * head, taps, 1)
        for name in ("attn_sconv", "mlp_sconv"):
            s.plain(f"{p}.{name}.weight", d, taps, 1)
        for name in ("attn_norm", "mlp_norm"):
            s.plain(f"{p}.{name}.weight", d)
        if i < c["dense_mlp_idx"]:
            for role, shape in _roles(c["dense_intermediate_size"], d):
                s.packed(f"{p}.mlp.{role}_proj", *shape)
            s.plain(f"{p}.mlp.global_scale", 1)
            continue
        s.plain(f"{p}.mlp.gate.weight", experts + shared, d)
        s.plain(f"{p}.mlp.gate.bias", experts, dtype="F32")
        s.plain(f"{p}.mlp.gate.global_scale", 1, dtype="F32")
        for role, shape in _roles(width, d):
            s.packed(f"{p}.mlp.shared_experts.{role}_proj", shared, *shape)
            s.packed(f"{p}.mlp.experts.{role}_proj", experts, *shape)
    s.plain("model.llm.norm.weight", d)
    s.packed("model.llm.unembed", c["vocab_size"], d)


def _maple(s: _Shapes, c: dict[str, Any], _: dict[str, Any]) -> None:
    d, experts, width = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
    heads, kv, head = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    s.packed("model.word_embeddings", c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}"
        s.plain(f"{p}.input_layernorm.weight", d)
        s.plain(f"{p}.post_attention_layernorm.weight", d)
        s.ternary(f"{p}.self_attn.q_proj", heads * head, d)
        s.ternary(f"{p}.self_attn.k_proj", kv * head, d)
        s.ternary(f"{p}.self_attn.v_proj", kv * head, d)
        s.ternary(f"{p}.self_attn.o_proj", d, heads * head)
        s.plain(f"{p}.self_attn.q_norm.weight", head)
        s.plain(f"{p}.self_attn.k_norm.weight", head)
        s.plain(f"{p}.mlp.gate.weight", experts, d)
        for role, shape in _roles(width, d):
            s.ternary(f"{p}.mlp.switch_mlp.{role}_proj", experts, *shape)
    s.plain("model.norm.weight", d)
    s.packed("lm_head", c["vocab_size"], d)
    if "flash_head" in c:
        clusters = c["flash_head"]["n_clusters"]
        s.packed("lm_head_flash.centroids", clusters, d)
        s.plain("lm_head_flash.token_map", clusters, c["flash_head"]["cluster_size"], dtype="I32")
    s.plain("lm_head_flash.cluster_scale", 8, dtype="F32")
    s.packed("lm_head_flash.head", c["vocab_size"], d)


def _roles(width: int, hidden: int) -> tuple[tuple[str, tuple[int, int]], ...]:
    return ("gate", (width, hidden)), ("up", (width, hidden)), ("down", (hidden, width))


def payload(name: str, size: int) -> bytes:
    """The bytes of a source tensor: random, and always the same for one name."""
    return np.random.default_rng(zlib.crc32(name.encode())).bytes(size)


def write_without_payload(folder: Path, config: dict[str, Any], shard_size: int) -> Path:
    """Write a checkpoint whose tensors are holes, in shards of about so many bytes."""
    shards: list[list[str]] = [[]]
    room = shard_size
    tensors = source_tensors(checkpoint_shapes(config))
    for name, tensor in tensors.items():
        if tensor.size > room and shards[-1]:
            shards.append([])
            room = shard_size
        shards[-1].append(name)
        room -= tensor.size
    folder.mkdir()
    weight_map = {}
    for i, names in enumerate(shards):
        shard = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        header, at = {}, 0
        for name in names:
            tensor = tensors[name]
            offsets = [at, at + tensor.size]
            header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
            at += tensor.size
        text = json.dumps(header).encode()
        with (folder / shard).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + at)
        weight_map |= dict.fromkeys(names, shard)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder
