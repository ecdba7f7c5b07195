"""The Python API as its users meet it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
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


def test_a_thread_that_asks_while_another_one_computes_is_told_so(demo_install):
    with mference.load(demo_install, context=4096) as model:
        computing, go_on = threading.Event(), threading.Event()
        answers = []

        def hold(_done, _total):
            computing.set()
            go_on.wait(60)

        def ask():
            answers.append(model.chat(QUESTION, temperature=0, on_prefill=hold).content)

        thread = threading.Thread(target=ask)
        thread.start()
        assert computing.wait(60)
        for use in (lambda: model.chat(QUESTION), lambda: model.generate("The"), model.close):
            with pytest.raises(GenerationError, match="already computing"):
                use()
        go_on.set()
        thread.join()
        assert answers == [ANSWER]
        assert model.chat(QUESTION, temperature=0).content == ANSWER


def test_an_answer_cannot_be_read_by_two_threads_at_once(demo_model):
    computing, go_on = threading.Event(), threading.Event()

    def hold(_done, _total):
        computing.set()
        go_on.wait(60)

    answer = demo_model.stream(QUESTION, temperature=0, on_prefill=hold)
    pieces = []
    thread = threading.Thread(target=lambda: pieces.extend(answer))
    thread.start()
    assert computing.wait(60)
    with pytest.raises(GenerationError, match="already computing"):
        next(answer)
    go_on.set()
    thread.join()
    assert "".join(pieces) == ANSWER


@pytest.mark.parametrize("ids", [None, 5, "ab", [1.5], ["a"], [None]])
def test_what_is_no_sequence_of_token_ids_is_refused(demo_model, ids):
    with pytest.raises(ConfigError, match="token ids"):
        demo_model.stream_ids(ids, chat=False)


@pytest.mark.parametrize("token", [-1, 8192, 2**31, 2**64])
def test_a_token_that_the_vocabulary_lacks_is_refused(demo_model, token):
    with pytest.raises(ConfigError, match=f"token {token} is outside"):
        demo_model.stream_ids([2, token], chat=False)


def test_token_ids_may_come_in_an_array(demo_model):
    ids = demo_model.format.prompt_ids(QUESTION)
    answer = demo_model.stream_ids(np.array(ids), chat=True, temperature=0)
    assert answer.reply.content == ANSWER


def test_numbers_of_any_size_go_through_the_template(demo_model):
    call = {"function": {"name": "remind", "arguments": {"at": 1_760_000_000}}}
    text = demo_model.format.render(
        [
            *QUESTION,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": {"id": -(10**12)}},
        ]
    )
    assert "at:1760000000" in text
    assert "id:-1000000000000" in text


def test_thinking_is_asked_of_the_template(demo_model):
    def prompt_tokens(**options):
        answer = demo_model.stream(QUESTION, max_new=1, temperature=0, **options)
        return answer.completion.prompt_tokens

    form = demo_model.format
    thinking = len(form.prompt_ids(QUESTION, enable_thinking=True))
    assert prompt_tokens(thinking=True) == thinking
    assert prompt_tokens() == prompt_tokens(thinking=False) == len(form.prompt_ids(QUESTION))
    reply = demo_model.chat(QUESTION, thinking=True, max_new=1, temperature=0)
    assert reply.completion.prompt_tokens == thinking
    with pytest.raises(ConfigError, match="thinking goes with messages"):
        demo_model.stream("A lighthouse is", thinking=True)


def test_an_answer_inside_an_open_thought_is_reasoning(demo_model):
    form = demo_model.format
    opened = form.tokenizer.encode("<|channel>thought\nA lighthouse")
    ids = form.prompt_ids(QUESTION, enable_thinking=True) + opened
    reply = demo_model.stream_ids(ids, chat=True, temperature=0).reply
    assert (reply.reasoning, reply.content) == (ANSWER.removeprefix("A lighthouse"), "")


def test_an_empty_conversation_is_refused(demo_model):
    with pytest.raises(TemplateError, match="no message"):
        demo_model.chat([])


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
        ({"threads": 1.5}, ConfigError, "threads 1.5"),
        ({"threads": None}, ConfigError, "threads None"),
        ({"context": "4096"}, ConfigError, "context '4096'"),
        ({"context": 4096.0}, ConfigError, r"context 4096\.0"),
        ({"context": True}, ConfigError, "context True"),
        ({"slots": 16.0}, ConfigError, r"16\.0 expert slots"),
        ({"slots": "16"}, ConfigError, "'16' expert slots"),
        ({"prefill_chunk": 64.0}, ConfigError, r"prefill chunk 64\.0"),
        ({"device": "tpu"}, ConfigError, "choose one of auto, cpu, metal"),
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
    from tests.oracles import checkpoint, gemma4

    path = checkpoint.write_and_install(tmp_path, gemma4.Shape(layers="sf"), seed=1)
    with pytest.raises(UnpinnedModel, match="pinned"):
        mference.load(path)


def test_all_errors_share_one_base():
    from mference import errors

    classes = [v for v in vars(errors).values() if isinstance(v, type)]
    assert all(issubclass(c, MferenceError) for c in classes if issubclass(c, Exception))
