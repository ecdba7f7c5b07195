"""The Python API as its users meet it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import mference
from mference.errors import (
    ConfigError,
    ContextLengthError,
    DeviceError,
    GenerationError,
    MferenceError,
    PartialInstall,
    TemplateError,
    UnpinnedModel,
)

QUESTION = [{"role": "user", "content": "What is a lighthouse?"}]
ANSWER = "A lighthouse is a tower with a light that gives warning of shoals to passing ships."


def test_a_stream_gives_the_pieces_of_the_whole_answer(demo_model):
    answer = demo_model.stream(QUESTION, temperature=0)
    pieces = list(answer)
    assert len(pieces) > 5
    assert "".join(pieces) == ANSWER
    assert answer.reply.content == ANSWER
    assert answer.completion.text == ANSWER


def test_a_reply_can_be_asked_for_before_the_stream_is_read(demo_model):
    assert demo_model.stream(QUESTION, temperature=0).reply.content == ANSWER


def test_an_answer_reports_its_own_share_of_the_counters(demo_model):
    answers = [demo_model.stream(QUESTION, temperature=0).report for _ in range(2)]
    whole = demo_model.report()
    assert sum(report.tokens for report in answers) == whole.tokens
    assert sum(report.bytes_read for report in answers) == whole.bytes_read
    assert all(report.misses < whole.misses for report in answers)


def test_a_new_generation_ends_the_one_before(demo_model):
    first = demo_model.stream(QUESTION, temperature=0)
    assert next(first)
    assert demo_model.chat(QUESTION, temperature=0).content == ANSWER
    assert list(first) == []
    with pytest.raises(GenerationError, match="before it was complete"):
        _ = first.completion


def test_every_generation_starts_from_an_empty_state(demo_model):
    demo_model.generate("The capital of Peru is", max_new=5, temperature=0)
    assert demo_model.chat(QUESTION, temperature=0).content == ANSWER


def test_prefill_progress_is_told_chunk_by_chunk(demo_install):
    told = []
    with mference.load(demo_install, prefill_chunk=32) as model:
        model.generate(
            "tower " * 100,
            max_new=1,
            temperature=0,
            on_prefill=lambda done, total: told.append((done, total)),
        )
    assert [done for done, _ in told][:3] == [32, 64, 96]
    assert told[-1][0] == told[-1][1]


def test_a_closed_model_says_so(demo_install):
    model = mference.load(demo_install)
    model.close()
    model.close()
    with pytest.raises(GenerationError, match="closed"):
        model.generate("x")
    with pytest.raises(GenerationError, match="closed"):
        model.report()


def test_a_second_thread_is_refused_while_one_computes(demo_install):
    started, tried = threading.Event(), threading.Event()

    def wait(_done: int, _total: int) -> None:
        started.set()
        assert tried.wait(30)

    with mference.load(demo_install, prefill_chunk=32) as model, ThreadPoolExecutor() as threads:
        prompt = "tower " * 40
        want = model.generate(prompt, max_new=4, temperature=0).text
        first = threads.submit(model.generate, prompt, on_prefill=wait, max_new=4, temperature=0)
        assert started.wait(30)
        try:
            for use in (lambda: model.generate("x", max_new=1), model.close):
                with pytest.raises(GenerationError, match="already computing"):
                    use()
        finally:
            tried.set()
        assert first.result().text == want


def test_other_threads_run_while_the_model_computes(demo_install):
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    with mference.load(demo_install, context=20_000, prefill_chunk=4096) as model:
        counter = threading.Thread(target=count)
        counter.start()
        start = time.perf_counter()
        model.generate("tower " * 4000, max_new=1, temperature=0)
        seconds = time.perf_counter() - start
        done.set()
        counter.join()
    # A lock held through a chunk would leave a handful of ticks.
    assert ticks > 100 * seconds


def test_a_prompt_that_does_not_fit_is_refused_with_its_length(demo_install):
    with mference.load(demo_install, context=16) as model:
        with pytest.raises(ContextLengthError, match=r"21 tokens.*context of 16"):
            model.chat(QUESTION)
        assert model.generate("A dog is", max_new=100, temperature=0).completion_tokens <= 16


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"slots": 7}, ConfigError, "slots"),
        ({"prefill_chunk": 100}, ConfigError, "chunk"),
        ({"context": 0}, ConfigError, "context"),
        ({"context": 2**31}, ConfigError, "context"),
        ({"threads": -1}, ConfigError, "threads"),
        ({"threads": 100_000}, ConfigError, "threads"),
        ({"device": "metal"}, ConfigError, "cpu"),
        ({"verify": "never"}, ConfigError, "trusted-receipt"),
    ],
)
def test_arguments_out_of_range_are_refused(demo_install, arguments, error, says):
    with pytest.raises(error, match=says):
        mference.load(demo_install, **arguments)


@pytest.mark.parametrize("isa", ["avx1024", ""])
def test_an_unknown_instruction_set_is_a_device_error(isa):
    from mference import _core

    with pytest.raises(DeviceError, match="auto"):
        _core.cpu_device(isa=isa)


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -1}, {"top_k": 1000}, {"top_p": 0}, {"max_new": 0}, {"seed": -1}],
)
def test_settings_out_of_range_are_refused(demo_model, settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        demo_model.generate("x", **settings)


def test_messages_of_the_wrong_shape_are_refused(demo_model):
    with pytest.raises(TemplateError, match="wizard"):
        demo_model.chat([{"role": "wizard", "content": "x"}])


def test_a_text_is_no_conversation_and_a_conversation_no_text(demo_model):
    with pytest.raises(TemplateError, match="expected a list of messages, got str"):
        demo_model.chat("What is a lighthouse?")
    with pytest.raises(ConfigError, match="got list; use chat"):
        demo_model.generate(QUESTION)


def test_a_directory_that_is_no_install_is_refused(tmp_path):
    with pytest.raises(PartialInstall, match="no finished install"):
        mference.load(tmp_path)


def test_an_install_of_another_checkpoint_needs_permission(tmp_path):
    from tests.oracles import checkpoint
    from tests.oracles.test_gemma4 import install_checkpoint

    checkpoint.write(tmp_path / "ckpt", checkpoint.Shape(layers="sf"), seed=1)
    path = install_checkpoint(tmp_path / "ckpt", tmp_path / "tiny.gturbo")
    with pytest.raises(UnpinnedModel, match="pinned"):
        mference.load(path)


def test_all_errors_share_one_base():
    from mference import errors

    classes = [v for v in vars(errors).values() if isinstance(v, type)]
    assert all(issubclass(c, MferenceError) for c in classes if issubclass(c, Exception))
