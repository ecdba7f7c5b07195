"""The store against the conformance cases: manifest, layout, index, receipt, integrity."""

import hashlib
import json
from pathlib import Path

import pytest

from mference import errors
from mference._core import planning
from mference.families import ENTRIES
from mference.families.arch import read_arch
from mference.jsontext import Fields, parse, pretty
from mference.store import completeness, open_install, verify_install
from mference.store.directory import PAGE, RECEIPT, sha256_file
from mference.store.layout import check_written_layout, decode_layout
from mference.store.manifest import check_manifest, decode_manifest, probe_family
from mference.store.resident import (
    DTYPES,
    ENTRY,
    HEADER,
    ResidentIndex,
    ResidentTensor,
    TensorSpec,
    encode_index,
    plan_index,
    read_index,
)
from tests.conformance.loader import Case, cases, edited
from tests.store.toys import write_toy

CORRUPT = (errors.ManifestError, errors.LayoutError, errors.IndexCorrupt)
LABELS = {
    "partial_install": (errors.PartialInstall,),
    "not_gturbo": (errors.NotGturbo,),
    "unsupported_version": (errors.UnsupportedVersion,),
    "unknown_flag": (errors.UnknownFlag,),
    "arch_mismatch": (errors.ArchMismatch,),
    "stride_not_aligned": (errors.StrideNotAligned,),
    "missing_file": (errors.MissingFile,),
    "checksum_mismatch": (errors.IntegrityError,),
    "index_corrupt": CORRUPT,
    "tensor_missing": (errors.TensorNotFound,),
    "receipt_invalid": (errors.ReceiptInvalid,),
}


def check(case: Case, act):
    """Run `act`; its error must be exactly of the expected class, with the expected details."""
    label = case.expect.get("error")
    if label is None:
        return act()
    with pytest.raises(errors.StoreError) as caught:
        act()
    assert type(caught.value) in LABELS[label], repr(caught.value)
    for detail in ("field", "name"):
        if detail in case.expect:
            assert getattr(caught.value, detail) == case.expect[detail]
    return None


@pytest.mark.parametrize("case", cases("model_files", "manifest"))
def test_manifest(case: Case):
    base = case.shared["bases"][case.given["base"]]
    expected = read_arch(Fields(base["arch"], "base", ValueError))
    raw = case.given.get("raw")
    data = raw.encode() if raw is not None else pretty(edited(base, case.given["edits"]))
    cap = {"cap": case.given["size_cap"]} if "size_cap" in case.given else {}

    def act():
        manifest = decode_manifest(data, **cap)
        check_manifest(manifest, expected, page=case.given.get("page_size", PAGE))

    check(case, act)


@pytest.mark.parametrize("case", cases("model_files", "family_probe"))
def test_family_probe(case: Case, tmp_path: Path):
    if not case.given.get("manifest_present", True):
        check(case, lambda: open_install(tmp_path))
        return
    family = case.given["arch_family"]
    data = json.dumps({"arch": {"family": family} if family else {}}).encode()
    assert check(case, lambda: probe_family(data)) == case.expect.get("family")


def layout_bytes(case: Case) -> bytes:
    return json.dumps(edited(case.shared["layout_base"], case.given["edits"])).encode()


@pytest.mark.parametrize("case", cases("model_files", "layout"))
def test_layout(case: Case, tmp_path: Path):
    if not case.given.get("present", True):
        root = write_toy(tmp_path / "toy.gturbo")
        (root / "packed_experts/layout.json").unlink()
        check(case, lambda: open_install(root, allow_unpinned=True, warn=lambda _: None))
        return
    cap = {"cap": case.given["size_cap"]} if "size_cap" in case.given else {}
    layout = check(case, lambda: decode_layout(layout_bytes(case), **cap))
    for lookup in case.expect.get("lookups", ()):
        expert = layout.layers[lookup["layer"]].experts[lookup["expert"]]
        assert (expert.offset, expert.size) == (lookup["offset"], lookup["size"])


@pytest.mark.parametrize("case", cases("model_files", "layout_writer_check"))
def test_layout_writer_check(case: Case):
    plan = case.given["plan"]
    try:
        top = parse(layout_bytes(case), "layout.json", errors.LayoutError)
        layers = iter(top.objects("layers"))
        check_written_layout(top, layers, plan["layers"], plan["experts"], plan["stride"])
        accepted = True
    except errors.LayoutError:
        accepted = False
    assert accepted == case.expect["accepted"]


@pytest.mark.parametrize("case", cases("model_files", "index_plan"))
def test_index_plan(case: Case):
    specs = [
        TensorSpec(
            t["name"],
            DTYPES[t["dtype"]],
            tuple(t["shape"]),
            t["size"],
            t.get("scale_size", 0),
            t.get("bias_size", 0),
        )
        for t in case.given["tensors"]
    ]
    index = plan_index(specs)
    assert (index.index_size, index.resident_size) == (
        case.expect["index_size"],
        case.expect["resident_size"],
    )
    for wanted, tensor in zip(case.expect["entries"], index.tensors.values(), strict=True):
        found = {k: getattr(tensor, k) for k in wanted}
        assert found == wanted


def given_index(given: dict) -> ResidentIndex:
    tensors = {
        e["name"]: ResidentTensor(
            e["name"],
            DTYPES[e["dtype"]],
            tuple(e["shape"]),
            e["offset"],
            e["size"],
            e.get("scale_offset", 0),
            e.get("scale_size", 0),
            e.get("bias_offset", 0),
            e.get("bias_size", 0),
        )
        for e in given["entries"]
    }
    return ResidentIndex(given["index_size"], given["resident_size"], tensors)


@pytest.mark.parametrize("case", cases("model_files", "index_bytes"))
def test_index_bytes(case: Case):
    assert encode_index(given_index(case.given)).hex() == case.expect["hex"]


ENTRY_FIELDS = {  # name of an edit: (offset in the entry, bytes)
    "name_offset": (0, 4),
    "name_length": (4, 2),
    "dtype": (6, 1),
    "reserved": (7, 1),
    "offset": (8, 8),
    "size": (16, 8),
    "scale_offset": (40, 8),
    "scale_size": (48, 8),
    "bias_offset": (56, 8),
    "bias_size": (64, 8),
}
HEADER_FIELDS = {"index_size": 0, "resident_size": 8, "entry_count": 16}


@pytest.mark.parametrize("case", cases("model_files", "index_read"))
def test_index_read(case: Case, tmp_path: Path):
    index = given_index(case.given)
    data = bytearray(encode_index(index).ljust(index.file_size, b"\1"))
    edit = dict(case.given["edit"])
    entry_at = HEADER.size + ENTRY.size * edit.pop("entry", 0)
    lookup = edit.pop("lookup", None)
    for key, value in edit.items():
        if key in ENTRY_FIELDS:
            at, size = ENTRY_FIELDS[key]
            data[entry_at + at : entry_at + at + size] = value.to_bytes(size, "little")
        elif key in HEADER_FIELDS:
            at = HEADER_FIELDS[key]
            data[at : at + 8] = value.to_bytes(8, "little")
        elif key == "truncate_to":
            del data[value:]
        elif key == "append":
            data += bytes(value)
        else:
            pytest.fail(f"edit '{key}' is not covered")
    path = tmp_path / "model_weights.bin"
    path.write_bytes(data)

    def act():
        tensors = read_index(path).tensors
        assert set(index.tensors) == set(tensors)
        return tensors[lookup] if lookup else None

    check(case, act)


@pytest.mark.parametrize("case", cases("model_files", "buffer_cuts"))
def test_buffer_cuts(case: Case):
    given = case.given

    def act():
        return planning.buffer_cuts(given["region"], given["limit"], given["spans"])

    if "error" in case.expect:
        # The limit is a GPU's own: the file that exceeds it is sound, and runs elsewhere.
        assert case.expect["error"] == "index_corrupt"
        with pytest.raises(errors.DeviceError, match="do not fit a buffer of this GPU"):
            act()
    else:
        assert [list(cut) for cut in act()] == case.expect["chunks"]


def edit_receipt(root: Path, edit: dict) -> None:
    path = root / RECEIPT
    if edit.get("delete"):
        path.unlink()
        return
    if "raw" in edit:
        path.write_text(edit["raw"])
        return
    receipt = json.loads(path.read_bytes())
    files = receipt["files"]
    for key, value in edit.items():
        match key:
            case "drop":
                for name in [value] if isinstance(value, str) else value:
                    receipt.pop(name, None)
            case "drop_file":
                files.pop("model_weights.bin" if value is True else value)
            case "add_file":
                name = "extra.bin" if value is True else value
                files[name] = {"size": 1, "sha256": "0" * 64}
            case "size" | "sha256":
                files[edit["file"]][key] = value
            case "size_change":
                files["model_weights.bin"]["size"] += 1
            case "uppercase_hashes":
                receipt["manifestSha256"] = receipt["manifestSha256"].upper()
                for record in files.values():
                    record["sha256"] = record["sha256"].upper()
            case "moved":
                receipt["modelDirectoryPath"] += "-elsewhere"
            case "file":
                pass
            case _:
                receipt[key] = value
    path.write_text(json.dumps(receipt))


def open_toy(root: Path, mode: str = "full"):
    policy = "trusted-receipt" if mode == "trusted" else "full-sha256"
    return open_install(root, policy=policy, allow_unpinned=True, warn=lambda _: None)


@pytest.mark.parametrize("case", cases("model_files", "receipt"))
def test_receipt(case: Case, tmp_path: Path):
    root = write_toy(tmp_path / "toy.gturbo")
    edit_receipt(root, case.given["edit"])
    check(case, lambda: open_toy(root, case.given["mode"]))


def all_bytes(root: Path, mode: str) -> list[bytes]:
    install = open_toy(root, mode)
    weights = install.weights_path.read_bytes()
    out = [weights[a:b] for t in install.index.tensors.values() for a, b in t.spans]
    for layer in install.layout.layers:
        install.verify_layer(layer.layer)
        data = install.layer_path(layer.layer).read_bytes()
        out += [data[e.offset : e.offset + e.size] for e in layer.experts]
    return out


@pytest.mark.parametrize("case", cases("model_files", "integrity"))
def test_integrity(case: Case, tmp_path: Path):
    root = write_toy(tmp_path / "toy.gturbo", layers=2)
    if damage := case.given["damage"]:
        path = root / damage["file"]
        if damage.get("delete"):
            path.unlink()
        if damage.get("flip"):
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
    then = case.given["then"]
    if then == "compare_all_bytes":
        equal = all_bytes(root, "full") == all_bytes(root, "trusted")
        assert equal == case.expect["equal"]
        return

    def act():
        install = open_toy(root, case.given["mode"])
        if then.startswith("use_layer_"):
            install.verify_layer(int(then.removeprefix("use_layer_")))

    check(case, act)


@pytest.mark.parametrize("case", cases("model_files", "hash"))
def test_hash(case: Case, tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(bytes(i % 256 for i in range(256)) * (case.given["length"] // 256))
    hashes = {sha256_file(path, block=block) for block in case.given["block_sizes"]}
    assert hashes == {case.expect["sha256"]}


def refresh(root: Path, name: str, data: bytes) -> None:
    """Write a file of an install and make the manifest agree with it."""
    (root / name).write_bytes(data)
    manifest = json.loads((root / "manifest.json").read_bytes())
    record = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"][name] = record
    (root / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("case", cases("model_files", "verify_install"))
def test_verify_install(case: Case, tmp_path: Path):
    root = write_toy(tmp_path / "toy.gturbo", layers=2)
    layout = json.loads((root / "packed_experts/layout.json").read_bytes())
    manifest = json.loads((root / "manifest.json").read_bytes())
    for key, value in case.given["edit"].items():
        match key:
            case "truncate":
                (root / value).write_bytes((root / value).read_bytes()[:-1])
            case "flip":
                data = bytearray((root / value).read_bytes())
                data[0] ^= 1
                (root / value).write_bytes(data)
            case "delete":
                (root / value).unlink()
            case "add":
                (root / value).write_bytes(b"x")
            case "layout_layers":
                layout["layers"] = layout["layers"][:value]
            case "empty_layer":
                layout["layers"][value]["experts"] = []
            case "duplicate_expert":
                layout["layers"][0]["experts"][1]["expert"] = 0
            case "manifest_stride":
                manifest["expertStride"] = value
                (root / "manifest.json").write_text(json.dumps(manifest))
            case _:
                pytest.fail(f"edit '{key}' is not covered")
        if key in ("layout_layers", "empty_layer", "duplicate_expert"):
            refresh(root, "packed_experts/layout.json", json.dumps(layout).encode())
    before = (root / RECEIPT).read_bytes()
    if case.expect["ok"]:
        report = verify_install(root)
        assert list(report.unexpected) == case.expect.get("unexpected", [])
        open_toy(root, "trusted")
    else:
        with pytest.raises(errors.StoreError):
            verify_install(root)
        assert (root / RECEIPT).read_bytes() == before


@pytest.mark.parametrize("case", cases("model_files", "verify_provenance"))
def test_verify_provenance(case: Case, tmp_path: Path):
    root = write_toy(tmp_path / "toy.gturbo", source=("owner/model", "a" * 40))
    edit_receipt(root, case.given["receipt_edit"])
    receipt = verify_install(root).receipt
    assert (receipt.source_repo is not None) == case.expect["source_kept"]


@pytest.mark.parametrize("case", cases("model_files", "completeness"))
def test_completeness(case: Case, tmp_path: Path):
    given, root, entry = case.given, tmp_path / "toy.gturbo", None
    known = {"exists", "valid", "manifest", "source_hash", "layout", "receipt", "receipt_path"}
    assert given.keys() <= known, "an edit is not covered"
    if given.get("exists", True):
        write_toy(root)
    if "manifest" in given:
        (root / "manifest.json").write_text(given["manifest"])
    if "source_hash" in given:
        entry = ENTRIES["gemma4"]
    if not given.get("layout", True):
        (root / "packed_experts/layout.json").unlink()
    if not given.get("receipt", True):
        (root / RECEIPT).unlink()
    if "receipt_path" in given:
        edit_receipt(root, {"modelDirectoryPath": str(tmp_path / given["receipt_path"])})
    assert completeness(root, entry) == case.expect["status"]
