"""Tokens to text, one at a time, without losing or changing a byte.

Text is emitted as soon as later tokens cannot change it. What a token adds is found from the token
alone, so a long answer costs no more a token than a short one. Two kinds of vocabulary are read
that way: byte-level BPE, where a token is bytes, and byte-fallback BPE, where a token is text or
one `<0xNN>` byte. Any other is decoded again as a whole after every token.
"""

import codecs
import re
from typing import Protocol

from mference.chat.tokenizer import Tokenizer

REPLACEMENT = "\ufffd"

_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_FOR_MARK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}


def held_bytes(text: str) -> int:
    """UTF-8 bytes of the run of U+FFFD that ends a text: what a decode withholds for now."""
    return 3 * (len(text) - len(text.rstrip(REPLACEMENT)))


class ByteLevelText:
    """Text of a byte stream. Incomplete characters and trailing U+FFFD are held.

    Invalid UTF-8 becomes one U+FFFD for each maximal bad piece.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = 0  # U+FFFD characters decoded and not yet emitted

    def push(self, data: bytes) -> str:
        """Take the next bytes; returns the text they settle."""
        text = self._decoder.decode(data)
        body = text.rstrip(REPLACEMENT)
        held = self._held
        self._held = len(text) - len(body) + (0 if body else held)
        return REPLACEMENT * held + body if body else ""

    def flush(self) -> str:
        """Everything held; a character cut short becomes U+FFFD."""
        text = REPLACEMENT * self._held + self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._held = 0
        return text


class ByteFallbackText:
    """Text of pieces that are literal, or bytes spelled `<0xNN>`, which wait for what follows.

    A run of byte pieces is decoded as one, when an ordinary piece ends it.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def push(self, piece: str) -> str:
        """Take the next piece; returns the text it settles."""
        match = _BYTE_PIECE.fullmatch(piece)
        if match:
            self._bytes.append(int(match[1], 16))
            return ""
        return self.flush() + piece

    def flush(self) -> str:
        """The held bytes as text; one U+FFFD for each maximal bad piece."""
        text = self._bytes.decode("utf-8", "replace")
        self._bytes.clear()
        return text


class GrowingText:
    """What each of a series of growing whole decodes adds to the one before.

    A decoder may rewrite the end of its text ("it '" becomes "it's"). Nothing already emitted can
    be taken back; the part of the old ending that the new text repeats is not emitted twice.
    """

    def __init__(self) -> None:
        self.committed = ""

    def push(self, decode: str) -> str:
        """Take the decode of all tokens so far; a trailing run of U+FFFD is held."""
        return self._advance(decode.rstrip(REPLACEMENT))

    def flush(self, decode: str) -> str:
        """Take the final decode; nothing is held."""
        return self._advance(decode)

    def _advance(self, text: str) -> str:
        before, self.committed = self.committed, text
        shared = 0
        for old, new in zip(before, text, strict=False):
            if old != new:
                break
            shared += 1
        replaced, added = before[shared:], text[shared:]
        repeated = next(n for n in range(len(replaced), -1, -1) if _repeats(replaced, added, n))
        return added[repeated:]


def _repeats(replaced: str, added: str, length: int) -> bool:
    return added.startswith(replaced[len(replaced) - length :])


class _Assembler(Protocol):
    """Turns the tokens of one vocabulary kind into text."""

    def push(self, token: int, literal: str | None) -> str: ...

    def flush(self) -> str: ...


class Detokenizer:
    """Incremental detokenizer of one answer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._added = tokenizer.added
        self._tokenizer = tokenizer
        self._assembler = _assembler(tokenizer)

    def push(self, token: int, *, keep_special: bool = False) -> str:
        """The text that this token settles.

        Special tokens have no text unless `keep_special`; ids the vocabulary lacks never have.
        """
        special = self._added.get(token)
        if special is None:
            return self._assembler.push(token, None)
        if special and not keep_special:
            return ""
        return self._assembler.push(token, self._tokenizer.token(token))

    def flush(self) -> str:
        """The text still held; afterwards the detokenizer starts afresh."""
        return self._assembler.flush()


class _ByteLevelTokens:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text = ByteLevelText()

    def push(self, token: int, literal: str | None) -> str:
        if literal is not None:
            return self._text.push(literal.encode())
        piece = self._tokenizer.token(token) or ""
        try:
            data = bytes(_BYTE_OF[character] for character in piece)
        except KeyError:  # a token spelled outside the byte alphabet stands for itself
            data = piece.encode()
        return self._text.push(data)

    def flush(self) -> str:
        return self._text.flush()


class _ByteFallbackTokens:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._text = ByteFallbackText()

    def push(self, token: int, literal: str | None) -> str:
        if literal is not None:
            return self._text.push(literal)
        piece = self._tokenizer.token(token)
        return self._text.push(piece.replace("▁", " ")) if piece else ""

    def flush(self) -> str:
        return self._text.flush()


class _WholeDecode:
    """For decoders that look at neighbouring tokens; its cost grows with the answer's length."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._text = GrowingText()
        self._tokens: list[int] = []

    def push(self, token: int, literal: str | None) -> str:
        del literal  # the tokenizer's decoder spells added tokens itself
        self._tokens.append(token)
        return self._text.push(self._decode())

    def flush(self) -> str:
        text = self._text.flush(self._decode())
        self._start_afresh()
        return text

    def _decode(self) -> str:
        return self._tokenizer.decode(self._tokens, keep_special=True)


def _assembler(tokenizer: Tokenizer) -> _Assembler:
    decoder = tokenizer.decoder
    if decoder.get("type") == "ByteLevel":
        return _ByteLevelTokens(tokenizer)
    steps = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else []
    if steps == [_SPACE_FOR_MARK, {"type": "ByteFallback"}, {"type": "Fuse"}]:
        return _ByteFallbackTokens(tokenizer)
    return _WholeDecode(tokenizer)


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's spelling of bytes: printable Latin-1 as itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update((chr(0x100 + i), byte) for i, byte in enumerate(others))
    return alphabet


_BYTE_OF = _byte_alphabet()
