import re
import time

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from mference.chat.detokenizer import (
    ByteFallbackText,
    ByteLevelText,
    Detokenizer,
    GrowingText,
    held_bytes,
)
from mference.chat.tokenizer import Tokenizer
from tests.chat.demo import chat_format


def byte_level_tokenizer():
    """Every byte a token, a few of several bytes, a literal added token and a special one."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: i for i, character in enumerate(alphabet)}
    for piece in ("Ġthe", "æ¼¢", "ðŁ¦"):
        vocabulary[piece] = len(vocabulary)
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["<tool é>"])
    backend.add_special_tokens(["<end>"])
    return Tokenizer(backend)


def word_piece_tokenizer():
    backend = tokenizers.Tokenizer(
        models.WordPiece({"[UNK]": 0, "do": 1, "n": 2, "'": 3, "t": 4, "##ing": 5, "é": 6})
    )
    backend.decoder = decoders.WordPiece(cleanup=True)
    return Tokenizer(backend)


DEMO = chat_format().tokenizer
BYTE_LEVEL = byte_level_tokenizer()
DEMO_TOKENS = st.lists(
    st.integers(0, DEMO.size + 2) | st.sampled_from(DEMO.encode("漢字 é 🦙 👨‍👩‍👧 naïve"))
)


def streamed(tokenizer, tokens, **options):
    detokenizer = Detokenizer(tokenizer)
    deltas = [detokenizer.push(token, **options) for token in tokens]
    return [*deltas, detokenizer.flush()]


def fallback_bytes(piece):
    byte = re.fullmatch("<0x([0-9A-F]{2})>", piece)
    return bytes.fromhex(byte[1]) if byte else piece.replace("▁", " ").encode()


@given(DEMO_TOKENS, st.booleans())
@settings(deadline=None)
def test_byte_fallback_deltas_are_the_full_decode(tokens, keep):
    silent = () if keep else [t for t, special in DEMO.added.items() if special]
    pieces = [DEMO.token(t) for t in tokens if t < DEMO.size and t not in silent]
    whole = b"".join(map(fallback_bytes, pieces)).decode("utf-8", "replace")
    assert "".join(streamed(DEMO, tokens, keep_special=keep)) == whole
    if "\ufffd" not in whole:  # the library's own decoder drops good bytes beside bad ones
        assert DEMO.decode([t for t in tokens if t < DEMO.size], keep_special=keep) == whole


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="▁")))
@settings(deadline=None)
def test_byte_fallback_gives_back_every_text(text):
    assert "".join(streamed(DEMO, DEMO.encode(text), keep_special=True)) == text


@given(st.lists(st.integers(0, BYTE_LEVEL.size + 2)), st.booleans())
@settings(deadline=None)
def test_byte_level_deltas_are_the_full_decode(tokens, keep):
    pieces = [BYTE_LEVEL.token(t) for t in tokens if t < BYTE_LEVEL.size]
    alphabet = {BYTE_LEVEL_SPELLING[b]: b for b in range(256)}
    data = b"".join(
        (piece.encode() if keep or piece != "<end>" else b"")
        if piece.startswith("<") and len(piece) > 1
        else bytes(alphabet[c] for c in piece)
        for piece in pieces
    )
    assert "".join(streamed(BYTE_LEVEL, tokens, keep_special=keep)) == data.decode(
        "utf-8", "replace"
    )


def spelling():
    printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    others = iter(range(0x100, 0x200))
    return {b: chr(b) if b in printable else chr(next(others)) for b in range(256)}


BYTE_LEVEL_SPELLING = spelling()


@given(st.lists(st.binary(max_size=5)))
@settings(deadline=None)
def test_byte_stream_holds_only_what_may_still_change(chunks):
    text = ByteLevelText()
    data, shown = b"", ""
    for chunk in chunks:
        data += chunk
        shown += text.push(chunk)
        assert shown == data.decode("utf-8", "replace").rstrip("\ufffd")
    assert shown + text.flush() == data.decode("utf-8", "replace")
    assert text.flush() == ""


@given(st.lists(st.sampled_from(["a", "é", "<0xC3>", "<0xA9>", "<0xf0>", "<0x", "<0x1G>"])))
@settings(deadline=None)
def test_byte_pieces_are_decoded_a_run_at_a_time(pieces):
    text = ByteFallbackText()
    shown = "".join(map(text.push, pieces)) + text.flush()
    expected = b"".join(
        bytes.fromhex(p[3:5]) if len(p) == 6 and p != "<0x1G>" else p.encode() for p in pieces
    )
    assert shown == expected.decode("utf-8", "replace")


@given(st.lists(st.text("aé\ufffd")))
@settings(deadline=None)
def test_growing_text_that_only_grows_is_emitted_whole(pieces):
    text = GrowingText()
    wholes = ["".join(pieces[:i]) for i in range(1, len(pieces) + 1)]
    shown = "".join(map(text.push, wholes))
    assert held_bytes(shown) == 0
    assert shown + text.flush("".join(pieces)) == "".join(pieces)


def test_other_decoders_are_decoded_as_a_whole():
    tokenizer = word_piece_tokenizer()
    assert streamed(tokenizer, [1, 2, 3, 4, 5]) == ["do", " n", " '", " t", "ing", ""]


def test_special_tokens_are_silent_unless_kept():
    assert streamed(DEMO, [105, *DEMO.encode("x"), 106]) == ["", "x", "", ""]
    assert streamed(DEMO, [105], keep_special=True) == ["<|turn>", ""]


def test_a_detokenizer_starts_afresh_after_a_flush():
    detokenizer = Detokenizer(DEMO)
    first = DEMO.encode("🦙")[0]
    assert detokenizer.push(first) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.push(DEMO.encode("x")[0]) == "x"


@pytest.mark.parametrize("tokenizer", [DEMO, BYTE_LEVEL], ids=["fallback", "byte level"])
def test_a_token_costs_the_same_in_a_long_answer(tokenizer):
    detokenizer = Detokenizer(tokenizer)
    tokens = [token % tokenizer.size for token in range(300, 8300)]

    def seconds(repeats):
        started = time.perf_counter()
        for _ in range(repeats):
            for token in tokens:
                detokenizer.push(token)
        return time.perf_counter() - started

    seconds(1)
    short = min(seconds(1) for _ in range(3))
    assert seconds(8) < 8 * short * 4 + 0.5
