"""What users get wrong, and what goes wrong around them: one line, an exit code, no traceback."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from mference.store.directory import LAYOUT, MANIFEST, RECEIPT, WEIGHTS
from tests.chat.demo import CHECKPOINT
from tests.cli.conftest import COMMAND

LAYERS = json.loads((CHECKPOINT / "config.json").read_text())["text_config"]["num_hidden_layers"]
TOKENIZER = ("chat_template.jinja", "config.json", "tokenizer.json", "tokenizer_config.json")
FILES = [
    MANIFEST,
    WEIGHTS,
    LAYOUT,
    *(f"packed_experts/layer_{layer:02d}.bin" for layer in range(LAYERS)),
    *(f"tokenizer/{name}" for name in TOKENIZER),
]


def check_line(result, code, *says):
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("mference: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    for text in says:
        assert text in result.stderr


@pytest.fixture
def own_install(demo_install, tmp_path):
    """A copy of the demo's install whose files may be replaced, but not written to."""
    return shutil.copytree(demo_install, tmp_path / "own.gturbo", copy_function=os.link)


@pytest.fixture
def generate(mference_command):
    def run(model, *arguments):
        return mference_command(
            "generate", "--model", model, "--prompt", "The", "--max-new", "1", *arguments
        )

    return run


def replace(path, data):
    path.unlink()
    path.write_bytes(data)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    replace(path, bytes(data))


def test_every_file_of_an_install_is_listed_here(demo_install):
    found = {str(p.relative_to(demo_install)) for p in demo_install.rglob("*") if p.is_file()}
    assert found - {RECEIPT} == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_noticed_before_a_word_is_written(generate, own_install, name):
    flip(own_install / name)
    check_line(generate(own_install), 1, name.rpartition("/")[2])


def test_a_flipped_bit_in_the_receipt_ends_trust_in_it(generate, own_install):
    flip(own_install / RECEIPT)
    check_line(generate(own_install, "--verify", "trusted-receipt"), 1, RECEIPT)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_is_noticed(generate, own_install, name):
    data = (own_install / name).read_bytes()
    replace(own_install / name, data[: len(data) // 2])
    check_line(generate(own_install), 1)


@pytest.mark.parametrize("name", [n for n in FILES if not n.startswith("tokenizer/")])
def test_a_missing_file_is_noticed(generate, own_install, name):
    (own_install / name).unlink()
    check_line(generate(own_install), 1, name.rpartition("/")[2])


def test_a_missing_tokenizer_is_noticed(generate, own_install):
    (own_install / "tokenizer/tokenizer.json").unlink()
    check_line(generate(own_install), 1, "tokenizer.json", "MFERENCE_TOKENIZER_DIR")


@pytest.mark.parametrize("permission", [[], ["--allow-unpinned"]])
def test_a_model_of_another_family_is_refused(generate, own_install, permission):
    manifest = json.loads((own_install / MANIFEST).read_text())
    manifest["arch"]["family"] = "maple"
    replace(own_install / MANIFEST, json.dumps(manifest).encode())
    check_line(generate(own_install, *permission), 1, "maple")


def test_a_question_that_is_no_text_is_refused(mference_process):
    check_line(mference_process("demo", "--once", os.fsdecode(b"caf\xe9")), 2, "--once")


@pytest.mark.parametrize("flag", ["--prompt", "--stop", "--system"])
def test_an_argument_that_is_no_text_is_refused(mference_process, demo_install, flag):
    command = "chat" if flag == "--system" else "generate"
    prompt = [] if flag != "--stop" else ["--prompt", "x"]
    broken = os.fsdecode(b"caf\xe9")
    result = mference_process(command, "--model", demo_install, *prompt, flag, broken)
    check_line(result, 2, flag, "not UTF-8")


def test_a_line_that_is_no_text_is_refused(demo_install, cli_environment):
    result = subprocess.run(
        [*COMMAND, "chat", "--model", str(demo_install)],
        input=b"caf\xe9\n", env=cli_environment, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 2
    assert (
        result.stderr
        == b"mference: standard input: this line is not UTF-8; give it as UTF-8 text\n"
    )


@pytest.mark.parametrize("flag", ["--messages-file", "--tools"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[{", "JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"role": "user"}', "list"),
        (b"[1]", "[0]"),
        (b'[{"role": "wizard", "name": 1}]', "[0]"),
        (b"[]", "there is no"),
        (b"[NaN]", "NaN"),
        (b"[1e999]", "larger than any double"),
        (rb'[{"role": "user", "content": "\ud800"}]', "surrogate"),
        (b"[" * 100_000, "deeper"),
        (b" " * (64 << 20) + b"[]", "larger than"),
    ],
)
def test_a_file_of_the_wrong_kind_is_named(
    mference_command, demo_install, tmp_path, flag, content, says
):
    (tmp_path / "bad.json").write_bytes(content)
    (tmp_path / "good.json").write_text('[{"role": "user", "content": "x"}]')
    messages = () if flag == "--messages-file" else ("--messages-file", "good.json")
    result = mference_command("generate", "--model", demo_install, *messages, flag, "bad.json")
    check_line(result, 2, "bad.json", says)


def test_a_schema_that_is_none_is_named(mference_command, demo_install, tmp_path):
    tool = {"name": "f", "parameters": {"properties": ["city"]}}
    (tmp_path / "tools.json").write_text(json.dumps([tool]))
    (tmp_path / "good.json").write_text('[{"role": "user", "content": "x"}]')
    result = mference_command(
        "generate", "--model", demo_install, "--messages-file", "good.json", "--tools", "tools.json"
    )
    check_line(result, 2, "'f'", "'properties'")


@pytest.mark.parametrize("name", [MANIFEST, LAYOUT, RECEIPT])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(mference_process, own_install, name):
    (own_install / name).unlink()
    os.mkfifo(own_install / name)
    if name == RECEIPT:
        result = mference_process(
            "generate", "--model", own_install, "--prompt", "x", "--verify", "trusted-receipt"
        )
    else:
        result = mference_process("verify", own_install)
    check_line(result, 1, name.rpartition("/")[2])


@pytest.mark.parametrize("command", [["verify"], ["generate", "--prompt", "x", "--model"]])
def test_an_install_whose_path_is_no_text_is_named(mference_command, own_install, command):
    place = own_install.rename(own_install.with_name(os.fsdecode(b"caf\xe9")))
    check_line(mference_command(*command, place.name), 1, "UTF-8")


def test_line_ends_and_escapes_of_a_name_do_not_reach_the_terminal(mference_process):
    result = mference_process("verify", "a\nb\x1b[31m")
    check_line(result, 1, r"there is no directory a\nb\x1b[31m.")


@pytest.mark.parametrize("place", ["", ".", "no/such/x.npz", "/proc/version/x.npz"])
def test_a_trace_that_cannot_be_written_is_refused_before_the_answer(generate, demo_install, place):
    check_line(generate(demo_install, "--trace", place), 2, "--trace")


@pytest.mark.parametrize("context", ["0", "-1", str(2**31)])
def test_a_context_that_no_model_has_is_refused(mference_command, context):
    check_line(mference_command("doctor", "--quick", "--max-context", context), 2, "--max-context")


def test_a_current_folder_that_was_removed_is_named(shell):
    line = 'mkdir gone && cd gone && rmdir "$PWD" && "$@"'
    check_line(shell(line, "doctor", "--quick"), 1, "current folder")


def test_too_little_memory_for_a_measurement_is_one_line(shell):
    # Enough addresses for Python, and too few for the measurement or for a thread a processor.
    line = 'ulimit -v 300000; OPENBLAS_NUM_THREADS=1 "$@"'
    check_line(shell(line, "doctor", "--quick"), 1)


@pytest.mark.parametrize("flag", ["--tools", "--thinking"])
def test_what_needs_a_conversation_is_refused_for_a_prompt(
    generate, demo_install, tools_file, flag
):
    value = [tools_file] if flag == "--tools" else []
    check_line(generate(demo_install, flag, *value), 2, flag, "--messages-file")


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"]])
def test_a_help_text_that_cannot_be_written_is_a_failure(shell, arguments, redirection):
    check_line(shell(f'"$@" {redirection}', *arguments), 1, "output")


def test_a_cache_that_takes_no_files_is_named(
    mference_command, cli_environment, monkeypatch, tmp_path
):
    (tmp_path / "file").write_text("")
    monkeypatch.setitem(cli_environment, "XDG_CACHE_HOME", str(tmp_path / "file"))
    check_line(mference_command("demo", "--once", "x"), 1, str(tmp_path / "file"))


def test_a_disk_that_is_full_is_a_failure_and_leaves_no_install(shell, tmp_path):
    # A limit on the size of files stands in for the disk's.
    line = 'ulimit -f 1000; "$@"'
    result = shell(line, "install", "--model", "demo", "--output", "d.gturbo")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "File too large" in result.stderr
    assert not (tmp_path / "d.gturbo").exists()


def test_ctrl_c_while_the_program_loads_ends_it_in_one_line(cli_environment):
    # The interpreter reports each import once it is done.
    environment = {**cli_environment, "PYTHONPROFILEIMPORTTIME": "1"}
    process = subprocess.Popen([*COMMAND, "--help"], env=environment, stderr=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert any("numpy" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    said = [line for line in errors.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, out, said) == (130, "", ["mference: interrupted"])


def test_a_polite_kill_leaves_no_traceback(demo_install, cli_environment):
    process = subprocess.Popen(
        [*COMMAND, "generate", "--model", str(demo_install), "--prompt", "<bos><bos>",
         "--temperature", "0", "--max-context", "100000", "--max-new", "99000"],
        env=cli_environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(3)
    process.terminate()
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == -signal.SIGTERM
