"""The repack plan against the conformance cases; families without source rules are skipped."""

import json
from dataclasses import replace
from typing import Any

import pytest

from mference import errors
from mference.families import FAMILIES, SourceRules
from mference.families.arch import Arch
from mference.families.family import classify, resident_order
from mference.installer.repack import Repack, plan_repack
from mference.installer.snapshot import config_family, read_quantization
from mference.store.manifest import FileRecord, Manifest, QuantSlot, encode_manifest
from mference.store.resident import TensorSpec, plan_index
from tests.conformance.loader import Case, cases
from tests.installer.checkpoints import (
    checkpoint_shapes,
    full_config,
    small_config,
    small_maple,
    text_config,
)
from tests.installer.toys import EXPERTS, Shapes, source_tensors, toy_config, toy_shapes
from tests.store.toys import HIDDEN, TRUNK, toy_arch


def rules_of(family: str) -> SourceRules:
    rules = FAMILIES[family].rules
    if rules is None:
        pytest.skip(f"sources of the family {family} are not readable yet")
    return rules


@pytest.mark.parametrize("case", cases("repack_plan", "classify"))
def test_classify(case: Case):
    rules = rules_of(case.given["family"])
    head = case.given.get("flash_head", False)
    found = classify(rules, case.given["name"], case.given["layers"], flash_head=head)
    assert found.bucket == case.expect["bucket"].replace("unknown_error", "unknown")
    if "role" in case.expect:
        assert (found.role, found.layer) == (case.expect["role"], case.expect["layer"])


@pytest.mark.parametrize("case", cases("repack_plan", "resident_order"))
def test_resident_order(case: Case):
    rules = rules_of(case.given["family"])
    order = sorted(case.given["names"], key=lambda name: resident_order(rules, name))
    assert order == case.expect["order"]


def plan(shapes: dict, config: dict[str, Any], arch: Arch) -> Repack:
    family = FAMILIES["gemma4"]
    rules = rules_of("gemma4")
    return plan_repack(family, rules, arch, read_quantization(config), source_tensors(shapes))


def plan_small_maple(shapes: Shapes) -> Repack:
    family, config = small_maple(), small_config("maple")
    head = rules_of("maple").flash_head.read(config)
    tensors, quantization = source_tensors(shapes), family.rules.quantization
    return plan_repack(family, family.rules, family.baseline, quantization, tensors, head)


@pytest.mark.parametrize("case", cases("repack_plan", "expert_blob"))
def test_expert_blob(case: Case):
    given = case.given
    layers = given["layers"]
    hidden, width, experts = given["hidden"], given["expert_width"], given["experts"]
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    overrides = {}
    for i, layer in enumerate(layers):
        for role in ("gate", "up", "down"):
            stem = f"{TRUNK}layers.{i}{EXPERTS}{role}_proj"
            rows, columns = (hidden, width) if role == "down" else (width, hidden)
            bits, group = layer["bits"], layer.get(f"{role}_group", 64)
            overrides[stem] = {"bits": bits, "group_size": group}
            shapes[f"{stem}.weight"] = ("U32", (experts, rows, columns * bits // 32))
            groups = (experts, rows, columns // group)
            shapes[f"{stem}.scales"] = shapes[f"{stem}.biases"] = ("BF16", groups)
    arch = Arch(
        **{
            **toy_arch(len(layers)),
            "hiddenSize": hidden,
            "moeIntermediateSize": width,
            "numExperts": experts,
        }
    )
    layout = plan(shapes, {"quantization": overrides}, arch).layout
    assert layout.expert_stride == case.expect["stride"]
    assert layout.expert_stride * experts == case.expect["layer_file_bytes"]
    for layer, wanted in zip(layout.layers, case.expect["layers"], strict=True):
        pieces = layer.experts[0].tensors
        assert [[n, p.offset, p.size] for n, p in pieces.items()] == wanted["sub_tensors"]
        assert sum(p.size for p in pieces.values()) == wanted["content_bytes"]


@pytest.mark.parametrize("case", cases("repack_plan", "plan_error"))
def test_plan_error(case: Case):
    given = dict(case.given)
    maple = given.pop("family", "gemma4") == "maple"
    shapes = checkpoint_shapes(small_config("maple")) if maple else toy_shapes()
    ternary = "model.layers.0.self_attn.q_proj"
    router, gate = f"{TRUNK}layers.0.router.proj", f"{TRUNK}layers.0{EXPERTS}gate_proj"

    def act():
        for key, value in given.items():
            match key:
                case "missing" if maple:
                    del shapes[f"{ternary}.{value}"]
                case "has":
                    shapes[f"{ternary}.{value}"] = ("BF16", (256, 2))
                case "missing":
                    del shapes[f"{router}.{value}"]
                case "scale_dtype":
                    shapes[f"{router}.scales"] = (value, shapes[f"{router}.scales"][1])
                case "routed_shape":
                    shapes[f"{gate}.weight"] = ("U32", tuple(value))
                case "routed_dtype":
                    shapes[f"{gate}.weight"] = (value, shapes[f"{gate}.weight"][1])
                case "missing_role":
                    for suffix in ("weight", "scales", "biases"):
                        del shapes[f"{TRUNK}layers.0{EXPERTS}{value}_proj.{suffix}"]
                case "index_bytes":
                    name = "x" * (value - 24 - 72)
                    plan_index([TensorSpec(name, "BF16", (1,), 2)])
                case "name":
                    shapes[value] = ("BF16", (1,))
                case "experts":
                    pass
                case _:
                    pytest.fail(f"'{key}' is not covered")
        plan_small_maple(shapes) if maple else plan(shapes, toy_config(), toy_arch())

    if maple:
        plan_small_maple(shapes)
    with pytest.raises(errors.CheckpointError) as caught:
        act()
    assert caught.value.reason == case.expect["error"]


@pytest.mark.parametrize("case", cases("repack_plan", "plan_rule"))
def test_plan_rule(case: Case):
    given, expect = case.given, case.expect
    config, shapes = toy_config(), toy_shapes()
    if "override" in given:
        override, stem = given["override"], f"{TRUNK}layers.0.self_attn.q_proj"
        config["quantization"] |= {"group_size": given["base_group"], stem: override}
        shapes[f"{stem}.weight"] = ("U32", (64, HIDDEN * override["bits"] // 32))
        groups = (64, HIDDEN // override["group_size"])
        shapes[f"{stem}.scales"] = shapes[f"{stem}.biases"] = ("BF16", groups)
    if "quantization" in given:
        config["quantization"] = given["quantization"]
    if "name" in given:
        shapes = {f"language_model.{given['name']}": (given["dtype"], (4, 4))}
    if "routed" in given:
        shapes = {name: s for name, s in shapes.items() if EXPERTS not in name}
    try:
        repack, error = plan(shapes, config, toy_arch()), None
    except errors.CheckpointError as exc:
        repack, error = None, exc.reason
    if "accepted" in expect:
        assert (error is None) == expect["accepted"]
        return
    assert error == expect.get("error")
    if repack and "companions" in expect:
        tensor = next(iter(repack.index.tensors.values()))
        assert (tensor.scale_size > 0) == expect["companions"]
    if repack and "blob" in expect:
        assert repack.layout.experts_per_layer == expect["experts"]
        assert any("layer_" in name for name in repack.outputs) == expect["blob"]


def complete_config(family: str, given: dict[str, Any]) -> dict[str, Any]:
    """A config with the values a case gives; of the full size if it says so, and for Maple."""
    given = dict(given)
    full = given.pop("production_shape", False) or family == "maple"
    config = full_config(family) if full else small_config(family)
    fields = text_config(config)
    if family == "deepseekV4Flash" and not full:
        del fields["compress_ratios"]
        listed = given.get("layer_types") or given.get("mlp_layer_types")
        if listed:
            fields["num_hidden_layers"] = len(listed)
        if given and not given.keys() & {"layer_types", "compress_ratios"}:
            fields["layer_types"] = ["sliding_attention"] * fields["num_hidden_layers"]
    if family == "inklingSmall" and "head_dim" in given:
        fields["swa_head_dim"] = given["head_dim"]
    fields.update(given)
    return config


@pytest.mark.parametrize("case", cases("repack_plan", "config_map"))
def test_config_map(case: Case):
    family = config_family({"model_type": case.given["model_type"]})
    rules = rules_of(family)
    config = complete_config(family, case.given["config"])
    if "error" in case.expect:
        with pytest.raises(errors.CheckpointError) as caught:
            rules.read_arch(config)
        assert caught.value.reason == case.expect["error"]
        return
    arch = rules.read_arch(config)
    for key, value in case.expect.items():
        assert arch[key] == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("case", cases("repack_plan", "manifest_keys"))
def test_manifest_keys(case: Case):
    family = FAMILIES[case.given["family"]]
    quant = {
        name: QuantSlot(r.bits[-1], r.scheme, r.scale_type, r.bias_type, r.group_size)
        for name, r in family.quant.items()
    }
    manifest = Manifest(
        "unknown/snapshot", family.baseline, {"f": FileRecord(1, "0" * 64)}, 0, 0, 0, quant
    )
    written = json.loads(encode_manifest(replace(manifest, source_hash=None)))
    assert set(case.expect.get("present", ())) <= written["arch"].keys()
    assert not set(case.expect.get("absent", ())) & written["arch"].keys()
    for slot, (bits, scheme) in case.expect.get("quant", {}).items():
        found = written["quant"][slot]
        assert (found["weightBits"], found["scheme"]) == (bits, scheme)
