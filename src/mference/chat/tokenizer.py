"""An install's tokenizer: text to ids and back, special tokens by name."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from mference.errors import MissingFile, StoreError, TemplateError

FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"


def find_tokenizer(install: Path, override: str | None = None) -> Path | None:
    """The directory that holds `tokenizer.json` for an install, or None.

    The install's own `tokenizer/` wins; `override` (from `MFERENCE_TOKENIZER_DIR`) is used only
    when the install has none. Nothing is ever fetched.
    """
    candidates = [install / "tokenizer", *([Path(override)] if override else [])]
    return next((path for path in candidates if (path / FILE).is_file()), None)


class Tokenizer:
    """A `tokenizers.Tokenizer` and the special-token names of `tokenizer_config.json`."""

    def __init__(
        self, backend: tokenizers.Tokenizer, config: Mapping[str, Any] | None = None
    ) -> None:
        self._backend = backend
        self.config: Mapping[str, Any] = config or {}

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        """Read `tokenizer.json` and, if present, `tokenizer_config.json` of a directory.

        Raises:
            MissingFile: there is no `tokenizer.json`.
            StoreError: one of the two files cannot be read as what it should be.
        """
        path = Path(directory) / FILE
        if not path.is_file():
            raise MissingFile(
                f"{path} is missing; install the model again, or name a directory that holds "
                f"{FILE} in MFERENCE_TOKENIZER_DIR",
                FILE,
            )
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exception for every malformed file
            raise StoreError(f"{path} is not a tokenizer: {error}; install it again") from error
        return cls(backend, read_config(Path(directory)))

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens written in it become their ids, and no BOS is added.

        Raises:
            TemplateError: the text holds a lone surrogate, which no tokenizer can encode.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TemplateError(
                f"the text is not valid Unicode at character {error.start}; "
                "remove the lone surrogate"
            ) from error
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int], *, keep_special: bool = False) -> str:
        """The text of these ids as the tokenizer's own decoder writes it."""
        return self._backend.decode(list(ids), skip_special_tokens=not keep_special)

    def id_of(self, token: str) -> int | None:
        """The id of exactly this token, or None; an unknown-token fallback does not count."""
        found = self._backend.token_to_id(token)
        return found if found is not None and self.token(found) == token else None

    def ids_of(self, tokens: Iterable[str]) -> dict[str, int]:
        """The ids of those tokens that the vocabulary has."""
        return {token: found for token in tokens if (found := self.id_of(token)) is not None}

    def token(self, token_id: int) -> str | None:
        """The vocabulary's spelling of an id, or None for an id it does not have."""
        if not 0 <= token_id < 1 << 32:
            return None
        return self._backend.id_to_token(token_id)

    @property
    def size(self) -> int:
        """Number of tokens, added ones included."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def added(self) -> dict[int, bool]:
        """Ids of added tokens, which are spelled literally, and whether each is special."""
        decoder = self._backend.get_added_tokens_decoder()
        return {token_id: token.special for token_id, token in decoder.items()}

    @cached_property
    def special_names(self) -> dict[str, str]:
        """The `*_token` entries of the configuration, such as `bos_token`."""
        named: dict[str, str] = {}
        for key, value in self.config.items():
            text = value.get("content") if isinstance(value, Mapping) else value
            if key.endswith("_token") and isinstance(text, str):
                named[key] = text
        return named

    @cached_property
    def decoder(self) -> Mapping[str, Any]:
        """The `decoder` section of `tokenizer.json`; empty when it has none."""
        return json.loads(self._backend.to_str()).get("decoder") or {}


def read_config(directory: Path) -> dict[str, Any]:
    """`tokenizer_config.json` of a directory, or an empty dict when there is none.

    Raises:
        StoreError: the file is there and is not a JSON object.
    """
    path = directory / CONFIG_FILE
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read: {error}; install the model again") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} is not a JSON object; install the model again")
    return value
