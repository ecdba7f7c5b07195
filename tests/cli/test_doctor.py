"""`mference doctor` as a user runs it."""

import json
from dataclasses import replace

import pytest

from mference import _core, doctor
from mference.devices import built_devices
from mference.families import ENTRIES


def test_all_models_are_listed_and_fit_a_terminal(mference_command):
    result = mference_command("doctor", "--quick")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if not line.startswith("  disk ")) <= 80
    for name in ENTRIES:
        assert any(line.startswith(f"{name}: ") for line in lines)
    assert result.stdout.count("forecast; this version cannot run it") == 4
    assert "(assumed)" in result.stdout


def test_the_sum_of_a_speed_is_shown_and_adds_up(mference_command):
    lines = mference_command("doctor", "--quick", "--model", "demo").stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  a token, with 2048"))
    end = next(i for i, line in enumerate(lines) if line.startswith("  = "))
    times = [float(line.split()[-2]) for line in lines[start + 1 : end + 1]]
    assert sum(times[:-1]) == pytest.approx(times[-1], abs=0.03)


def test_json_has_everything(mference_command):
    result = mference_command("doctor", "--quick", "--json", "--max-context", "8192")
    document = json.loads(result.stdout)
    assert document["machine"]["isas"] == _core.cpu_isas()
    assert document["disk"]["measured"] is False
    models = {model["name"]: model for model in document["models"]}
    assert list(models) == list(ENTRIES)
    gemma = models["gemma4"]
    assert (gemma["context"], gemma["runs"]) == (8192, True)
    assert [rung["slots"] for rung in gemma["rungs"]] == [8, 16, 24, 32, 64, 96, 128, "resident"]
    for rung in gemma["rungs"]:
        memory = rung["memory"]
        parts = ("slots", "state", "activations", "base")
        assert memory["own"] == sum(memory[part] for part in parts)
        assert (rung["speed"] is None) == bool(rung["problem"])
    assert models["maple"]["problem"] == "this version cannot run it"


def test_an_install_is_measured_by_its_own_files(mference_command, demo_install):
    result = mference_command("doctor", "--json", "--model", demo_install)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["disk"]["source"] == str(demo_install)
    (model,) = document["models"]
    assert model["auto"] == 16
    assert model["disk_bytes"] is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "maple"), "maple: this version cannot run it"),
        (("--model", "demo", "--max-context", "900000000"), r"demo: 8 expert slots need "),
    ],
)
def test_a_model_that_cannot_run_here_is_a_failure(mference_command, arguments, says):
    result = mference_command("doctor", "--quick", *arguments)
    assert result.returncode == 1
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--model", "nothing"), 2, "choose one of gemma4, demo"),
        (("--self-test", "--model", "demo"), 2, "--self-test goes with --json alone"),
        (("--model", "."), 1, "no finished install"),
    ],
)
def test_a_mistake_is_one_line(mference_command, arguments, code, says):
    result = mference_command("doctor", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_self_test_shows_every_device(mference_command, monkeypatch):
    golden = doctor.goldens()[0]
    monkeypatch.setattr(doctor.selftest, "goldens", lambda: (golden,))
    result = mference_command("doctor", "--self-test")
    assert result.returncode == 0, result.stderr
    names = [f"cpu {isa}" for isa in _core.cpu_isas()] + [d for d in built_devices() if d != "cpu"]
    for line, name in zip(result.stdout.splitlines(), names, strict=True):
        assert line.startswith(name)
        assert line.endswith(f" all {len(golden.answer)} tokens as they should be")


def test_the_self_test_fails_on_another_token(mference_command, monkeypatch):
    wrong = replace(doctor.goldens()[0], answer=(1,))
    monkeypatch.setattr(doctor.selftest, "goldens", lambda: (wrong,))
    result = mference_command("doctor", "--self-test")
    assert result.returncode == 1
    assert "does not compute what it should" in result.stderr
    assert "token 0 is" in result.stdout
